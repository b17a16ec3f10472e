/* Starting the server of a board (emu/server.c), and connecting to it. Owns nothing. Threading: any. */
#ifndef UNIMEM_EMU_CONNECT_H
#define UNIMEM_EMU_CONNECT_H

/*
 * A connection to the server of a board, which is started if there is none: a descriptor. The program is what
 * UNIMEM_EMU_SERVER names, else unimem-boardd beside this library, else the installed one.
 * -ENOENT there is none and none can be started; -EACCES another user listens there; -EMFILE.
 */
int emu_server_connect(const char *name);

#endif
