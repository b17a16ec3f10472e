/*
 * Maps internal errors to fabric errors. No other file does.
 *
 * Owns nothing. Threading: any.
 *
 * The layers below report an errno. libfabric's clients compare with FI_E* values; most of those are the errno of the
 * same name. The table holds the errors that need another value or a text of their own; all others stay as they are.
 */
#include "prov/prov.h"

#include <string.h>

struct um_prov_error_row {
    int error;
    int fabric;
    const char *text;
};

static const struct um_prov_error_row um_prov_error_table[] = {
    {EPIPE, FI_ESHUTDOWN, "the peer closed its endpoint"},
    {ECONNREFUSED, FI_ECONNREFUSED, "the peer's endpoint does not exist (any more)"},
    {ESRCH, FI_ECONNRESET, "the peer's process is gone"},
    {ECONNRESET, FI_ECONNRESET, "the peer is gone"},
    {EHOSTUNREACH, FI_EHOSTUNREACH, "the address is of another host, or its endpoint is not where it says"},
    {EPROTO, FI_EREMOTEIO, "the peer's data break the wire format, or it speaks another version of it"},
    {EMSGSIZE, FI_ETRUNC, "the message is larger than the receive buffer"},
    {ECANCELED, FI_ECANCELED, "canceled"},
    {ENOMSG, FI_ENOMSG, "no such message has arrived"},
    {EKEYREJECTED, FI_ENOKEY, "the target has no memory registered under this key"},
    {EACCES, FI_EACCES, "not permitted"},
    {ERANGE, FI_EACCES, "outside the memory registered under this key"},
    {EFAULT, FI_EFAULT, "not readable or writable memory"},
    {EPERM, FI_EPERM, "the system refuses access to the peer's memory"},
    {EADDRNOTAVAIL, FI_EADDRNOTAVAIL, "the sender's address is not in the address vector"},
    {ENOMEM, FI_ENOMEM, "out of memory"},
    {EMFILE, FI_EMFILE, "too many open files"},
    {EAGAIN, FI_EAGAIN, "no room now; make progress and try again"},
    {EINVAL, FI_EINVAL, "invalid argument"},
    {EBUSY, FI_EBUSY, "something still uses it"},
    {ENOSPC, FI_ENOSPC, "the machine has no more of it"},
    {ENOENT, FI_ENOENT, "no such operation"},
    {ENOSYS, FI_ENOSYS, "not implemented by this system"},
    {EOPNOTSUPP, FI_EOPNOTSUPP, "not supported"},
    {EEXIST, FI_ENOKEY, "the key is in use"},
    {EFBIG, EFBIG, "larger than the limit of file sizes (ulimit -f)"},
    {ENOTDIR, ENOTDIR, "not a directory"},
};

static const struct um_prov_error_row *um_prov_error_find(int error)
{
    for (size_t i = 0; i < sizeof(um_prov_error_table) / sizeof(um_prov_error_table[0]); i++) {
        if (um_prov_error_table[i].error == error)
            return &um_prov_error_table[i];
    }
    return NULL;
}

int um_prov_error_to_fi(int error)
{
    const struct um_prov_error_row *row = um_prov_error_find(error);
    if (row)
        return row->fabric;
    return error > 0 && error < FI_ERRNO_OFFSET ? error : FI_EOTHER; /* fi_strerror() knows every errno */
}

const char *um_prov_error_text(int error)
{
    const struct um_prov_error_row *row = um_prov_error_find(error);
    return row ? row->text : fi_strerror(um_prov_error_to_fi(error));
}
