/*
 * Finds out whether a job runs on several hosts, as far as the launcher's words and the batch system's variables tell.
 */
#ifndef UM_CMD_HOSTS_H
#define UM_CMD_HOSTS_H

#include <stdbool.h>

/*
 * Returns the option or variable that names hosts, or NULL; also one that names this host alone. *are_several_p: more
 * than one is named, as far as that can be seen: not in files of more options (-configfile, --app). The programs' own
 * words do not count. argv: the command, ended by NULL; launcher: as for um_cmd_words_behind (cmd/words.h).
 */
const char *um_cmd_hosts_named(char *const *argv, const char *launcher, bool *are_several_p);

#endif
