/* Does a job run on several hosts? As far as the launcher's words and the batch system's variables tell. */
#ifndef UM_CMD_HOSTS_H
#define UM_CMD_HOSTS_H

/*
 * argv: the command, ended by NULL; launcher: as for um_cmd_words_behind (cmd/words.h). Returns what names hosts, an
 * option or a variable, or NULL. One that names this host alone is told, too. Words of the programs tell nothing.
 */
const char *um_cmd_hosts_named(char *const *argv, const char *launcher);

#endif
