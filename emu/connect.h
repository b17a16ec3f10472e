/* Connects to the server of a board (emu/server.c), and starts it if needed. Owns nothing. Threading: any. */
#ifndef UNIMEM_EMU_CONNECT_H
#define UNIMEM_EMU_CONNECT_H

/*
 * Returns a connection to the server of a board (a descriptor). The server is started if there is none: the program
 * that UNIMEM_EMU_SERVER names, else unimem-boardd beside this library, else the installed one. -ENOENT: there is no
 * server and none can be started; -EACCES: another user listens there; -EMFILE.
 */
int emu_server_connect(const char *name);

#endif
