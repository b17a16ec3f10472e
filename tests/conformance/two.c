/* See two.h. */
#include "two.h"

struct um_port *a, *b;

void open_two_for(uint32_t lanes_max)
{
    a = port_new(0);
    b = port_new(lanes_max);
}

void open_two(void)
{
    open_two_for(0);
}

void close_two(void)
{
    machine->port_close(b);
    machine->port_close(a);
}
