/* See cmd/report.h. */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const state_words[] = {[UM_YES] = "yes", [UM_PARTLY] = "partly", [UM_NO] = "no", [UM_PLAIN] = "-"};

struct um_cmd_row *um_cmd_report_add(struct um_cmd_report *report, const char *section, const char *name,
                                     enum um_cmd_state state, const char *format, ...)
{
    if (report->count < UM_REPORT_MAX)
        report->count++;
    struct um_cmd_row *row = &report->row[report->count - 1];
    *row = (struct um_cmd_row){.section = section, .state = state};
    snprintf(row->name, sizeof row->name, "%s", name);
    va_list args;
    va_start(args, format);
    vsnprintf(row->detail, sizeof row->detail, format, args);
    va_end(args);
    return row;
}

/* Prints a text of several lines, the later ones aligned under the first. */
static void print_indented(const char *label, const char *text)
{
    printf("%-9s%-20s%s", "", "", label);
    for (; *text; text++) {
        putchar(*text);
        if (*text == '\n')
            printf("%-37s", "");
    }
    putchar('\n');
}

void um_cmd_report_print(const struct um_cmd_report *report)
{
    const char *section = NULL;
    for (unsigned i = 0; i < report->count; i++) {
        const struct um_cmd_row *row = &report->row[i];
        if (!section || strcmp(section, row->section) != 0)
            printf("%s%s\n", section ? "\n" : "", row->section);
        section = row->section;
        printf("  %-7s%-20s%s\n", state_words[row->state], row->name, row->detail);
        if (row->lost)
            print_indented("lost:   ", row->lost);
        if (row->remedy)
            print_indented("remedy: ", row->remedy);
    }
}

static void print_json_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_json_member(const char *key, const char *text, const char *before)
{
    printf("%s\"%s\": ", before, key);
    if (text)
        print_json_text(text);
    else
        fputs("null", stdout);
}

void um_cmd_report_print_json(const struct um_cmd_report *report)
{
    printf("{\"version\": \"%s\", \"rows\": [", UM_VERSION);
    for (unsigned i = 0; i < report->count; i++) {
        const struct um_cmd_row *row = &report->row[i];
        print_json_member("section", row->section, i ? ",\n  {" : "\n  {");
        print_json_member("name", row->name, ", ");
        print_json_member("state", row->state == UM_PLAIN ? NULL : state_words[row->state], ", ");
        print_json_member("detail", row->detail, ", ");
        print_json_member("lost", row->lost, ", ");
        print_json_member("remedy", row->remedy, ", ");
        putchar('}');
    }
    puts("\n]}");
}
