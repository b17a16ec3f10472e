/* The sizes of the datatypes of atomics. See atomic_apply.h. */
#include "proto/atomic_apply.h"

const uint8_t um_proto_atomic_shift[UM_TYPES] = {0, 0, 1, 1, 2, 2, 3, 3, 2, 3, 3, 4, 4, 5, 4, 4};
