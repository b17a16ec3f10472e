/*
 * The report of `unimem info`: rows that say what there is, what is missing, what that costs and how to get it; printed
 * as text or JSON. Does not know how the facts are found.
 */
#ifndef UM_CMD_REPORT_H
#define UM_CMD_REPORT_H

enum { UM_REPORT_MAX = 96 };

enum um_cmd_state {
    UM_YES,
    UM_PARTLY,
    UM_NO,
    UM_PLAIN /* a fact, neither good nor bad */
};

struct um_cmd_row {
    const char *section;
    char name[64];
    enum um_cmd_state state;
    char detail[512];
    const char *lost;   /* what its absence costs; NULL if nothing */
    const char *remedy; /* how to get it; NULL if lost is */
};

struct um_cmd_report {
    unsigned count; /* rows of one section stand together */
    struct um_cmd_row row[UM_REPORT_MAX];
};

/* Adds a row and returns it, for lost and remedy. Past UM_REPORT_MAX the last row is overwritten. */
struct um_cmd_row *um_cmd_report_add(struct um_cmd_report *report, const char *section, const char *name,
                                     enum um_cmd_state state, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void um_cmd_report_print(const struct um_cmd_report *report);
void um_cmd_report_print_json(const struct um_cmd_report *report);

#endif
