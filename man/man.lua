-- What pandoc leaves undone when it turns our Markdown into a manual page.
local total_width = 0.65 -- of 70 columns: gaps and unbreakable words come on top, and a page has 80

-- Pandoc 2 asks for a font named V, which only groff can be taught; bold is what manual pages use.
function Code(code)
    return pandoc.Strong({ pandoc.RawInline('man', '\\%'), pandoc.Str(code.text) }) -- \%: names are not hyphenated
end

function CodeBlock(block)
    local text = block.text:gsub('\\', '\\e'):gsub('%-', '\\-'):gsub("^([.'])", '\\&%1'):gsub("\n([.'])", '\n\\&%1')
    return pandoc.RawBlock('man', '.IP\n.nf\n' .. text .. '\n.fi')
end

-- Cells are narrow: spread to full width their words would stand far apart.
function Table(table)
    for _, spec in ipairs(table.colspecs) do
        if spec[2] then
            spec[2] = spec[2] * total_width
        end
    end
    return { pandoc.RawBlock('man', '.ad l'), table, pandoc.RawBlock('man', '.ad b') }
end

-- The heading of the page is the tagline, as on libfabric's own pages.
function Meta(meta)
    meta.header = meta.header or meta.tagline
    return meta
end
