/* Does a job run on several hosts? As far as the launcher's words and the batch system's variables tell. */
#ifndef UM_CMD_HOSTS_H
#define UM_CMD_HOSTS_H

/*
 * argv: the command, ended by NULL; first, end: where the launcher's own words begin and end in it, NULL: its first,
 * its last one. Returns what names hosts, an option or a variable, or NULL. One that names this host alone is told,
 * too.
 */
const char *um_cmd_hosts_named(char *const *argv, const char *first, const char *end);

#endif
