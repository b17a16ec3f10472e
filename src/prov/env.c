/*
 * The FI_UNIMEM_* variables: definition for fi_info -e, reading, checking.
 *
 * Owns: names, defaults and ranges (man/fi_unimem.7.md says the same). Must not know the objects that use them.
 * A wrong value is never used and never silent: a warning names the variable, the value and what is allowed, once.
 * Threading: libfabric may call from several threads.
 */
#include "prov/prov.h"

#include "base/atomic.h"
#include "base/log.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define UM_LANES_MAX  4096 /* docs/protocol.md section 3 */
#define UM_MEMORY_MIN (64ull << 10)
#define UM_MEMORY_MAX (1ull << 40)

/* Lists the machines, each with what it is: "shm, the memory of this host; ...". */
static void um_prov_env_machines_about(char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (const struct um_machine *const *m = um_machines_offered; *m && at < size; m++)
        at += (size_t)snprintf(text + at, size - at, "%s, %s; ", (*m)->name, (*m)->about);
}

static void um_prov_env_define_machines(void)
{
    char about[256];
    um_prov_env_machines_about(about, sizeof(about));
    fi_param_define(&um_prov_provider, "machine", FI_PARAM_STRING,
                    "What carries the messages, unless the name of the domain in the hints says it. Allowed: %sor "
                    "%s and one of the others with a comma between: the first that reaches a peer (default: %s)",
                    about, um_machines_offered[0]->name, um_machines_offered[0]->name);
    for (const struct um_machine *const *m = um_machines_offered; *m; m++) {
        for (uint32_t i = 0; i < (*m)->params_count; i++)
            fi_param_define(&um_prov_provider, (*m)->params[i].key, FI_PARAM_STRING, "%s", (*m)->params[i].help);
    }
}

/* All are strings: libfabric's own parser reads "4x" as 4 and "x" as 0. */
void um_prov_env_define(void)
{
    um_prov_env_define_machines();
    fi_param_define(
        &um_prov_provider, "copy", FI_PARAM_STRING,
        "How large messages move: 1, copied directly from process to process (process_vm_readv); 0, or where "
        "the system refuses that, through shared buffers; auto, whichever takes less time (default: auto)");
    fi_param_define(&um_prov_provider, "mapped", FI_PARAM_STRING,
                    "Whether the body of a message is copied out of its sender's memory as it is mapped here, where "
                    "that can be done (unimem run --heap): 1, always; 0, never; auto, where that takes less time "
                    "(default: auto)");
    fi_param_define(&um_prov_provider, "adopt", FI_PARAM_STRING,
                    "Move registered memory, in place, to where peers reach it with loads and stores; when off, they "
                    "copy it through the system (default: 1)");
    fi_param_define(
        &um_prov_provider, "attach", FI_PARAM_STRING,
        "How peers of other pid namespaces (containers) of this host get at the memory: off, abstract (they "
        "share a network namespace), or the absolute path of a directory that they share (default: off)");
    fi_param_define(&um_prov_provider, "partition", FI_PARAM_STRING,
                    "Processes of different partitions (numbers from 0 to 65535) do not reach each other by shared "
                    "memory, only by another machine of FI_UNIMEM_MACHINE (default: 0)");
    fi_param_define(&um_prov_provider, "lanes", FI_PARAM_STRING,
                    "Peers that can send to an endpoint at a time, 1 to 4096 (default: 4096)");
    fi_param_define(&um_prov_provider, "lane_memory", FI_PARAM_STRING,
                    "Bytes that busy lanes into an endpoint may grow to together, 65536 to 1099511627776 "
                    "(default: 67108864)");
    fi_param_define(&um_prov_provider, "unexpected_memory", FI_PARAM_STRING,
                    "Bytes that messages without a receive may take in an endpoint before it asks their senders to "
                    "wait, 65536 to 1099511627776 (default: 67108864)");
    fi_param_define(&um_prov_provider, "linger", FI_PARAM_STRING,
                    "Let an empty fi_cq_read of a caller that spins look for messages for about a microsecond, and a "
                    "blocking call for some before it sleeps; only while the ranks do not outnumber the processors. "
                    "And let a caller that spins for long yield its processor (default: 1)");
    fi_param_define(
        &um_prov_provider, "mpich_atomics", FI_PARAM_STRING,
        "Let fi_atomicvalid and its kin say yes to every form of an operation that has one: MPICH 5.0 looks "
        "at the wrong form when it decides whether accumulates may be native (default: 0)");
    fi_param_define(&um_prov_provider, "stats", FI_PARAM_STRING,
                    "Print what an endpoint has done to stderr when it is closed (default: 0)");
}

/* Warns once for each variable, because fi_getinfo is called several times. key: the name as it was defined. */
static int um_prov_env_refuse(uint32_t variable, const char *key, const char *value, const char *allowed)
{
    static uint64_t warned; /* sync: none (a flag; nothing is published with it) */
    char name[64];
    size_t len = 0;
    for (; key[len] && len < sizeof(name) - 1; len++)
        name[len] = (char)toupper((unsigned char)key[len]);
    name[len] = 0;
    if (um_rmw_or_u64(&warned, 1ull << variable) & 1ull << variable)
        return -FI_EINVAL;
    um_log(UM_LOG_WARN, "FI_UNIMEM_%s=%s is not valid; allowed: %s. The provider is not used until this is mended",
           name, value, allowed);
    return -FI_EINVAL;
}

static const char *um_prov_env_text(const char *name)
{
    char *text = NULL;
    return fi_param_get_str(&um_prov_provider, name, &text) == 0 ? text : NULL;
}

static int um_prov_env_bool(const char *text, bool *value_p)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value_p = i & 1;
            return 0;
        }
    }
    return -EINVAL;
}

static int um_prov_env_number(const char *text, uint64_t min, uint64_t max, uint64_t *value_p)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 0);
    if (errno || *text < '0' || *text > '9' || *end || v < min || v > max)
        return -EINVAL;
    *value_p = v;
    return 0;
}

/* Reads FI_UNIMEM_ATTACH. A directory must leave room for a socket's name behind it. */
static int um_prov_env_attach(const char *text, char *attach)
{
    bool is_on = true;
    if (um_prov_env_bool(text, &is_on) == 0 && !is_on)
        return 0;
    if ((strcmp(text, "abstract") != 0 && text[0] != '/') || strlen(text) >= UM_ATTACH_MAX)
        return -EINVAL;
    memcpy(attach, text, strlen(text) + 1);
    return 0;
}

/* Reads FI_UNIMEM_COPY: off, always directly, or learned. */
static int um_prov_env_copy(const char *text, struct um_prov_env *env)
{
    env->bodies = UM_BODIES_LEARN;
    if (strcasecmp(text, "auto") == 0)
        return 0;
    env->bodies = UM_BODIES_COPY;
    return um_prov_env_bool(text, &env->port.private_copy);
}

static int um_prov_env_mapped(const char *text, struct um_prov_env *env)
{
    bool is_on = true;
    if (strcasecmp(text, "auto") == 0)
        return 0;
    env->mapped = um_prov_env_bool(text, &is_on) ? UM_MAPPED_LEARN : is_on ? UM_MAPPED_ALWAYS : UM_MAPPED_NEVER;
    return env->mapped == UM_MAPPED_LEARN ? -EINVAL : 0;
}

static int um_prov_env_read_numbers(struct um_prov_env *env)
{
    const char *text = um_prov_env_text("lanes");
    uint64_t v = 0;
    if (text && um_prov_env_number(text, 1, UM_LANES_MAX, &v))
        return um_prov_env_refuse(0, "lanes", text, "a number from 1 to 4096");
    env->port.lanes_max = (uint32_t)v;
    text = um_prov_env_text("lane_memory");
    v = 0;
    if (text && um_prov_env_number(text, UM_MEMORY_MIN, UM_MEMORY_MAX, &v))
        return um_prov_env_refuse(1, "lane_memory", text, "a number of bytes from 65536 to 1099511627776");
    env->port.memory_max = v;
    text = um_prov_env_text("partition");
    v = 0;
    if (text && um_prov_env_number(text, 0, UINT16_MAX, &v))
        return um_prov_env_refuse(12, "partition", text, "a number from 0 to 65535");
    env->port.partition = (uint16_t)v;
    text = um_prov_env_text("unexpected_memory");
    v = 0;
    if (text && um_prov_env_number(text, UM_MEMORY_MIN, UM_MEMORY_MAX, &v))
        return um_prov_env_refuse(10, "unexpected_memory", text, "a number of bytes from 65536 to 1099511627776");
    env->unexpected_max = v;
    return 0;
}

static int um_prov_env_read_machines(struct um_prov_env *env)
{
    char allowed[256];
    const char *text = um_prov_env_text("machine");
    if (!text || um_machines_named(text, &env->machines) == 0)
        return 0;
    um_machines_allowed(allowed, sizeof(allowed));
    um_prov_env_refuse(2, "machine", text, allowed);
    return -FI_ENODATA;
}

/* Reads the parameters of all machines: a hint may ask for a machine that FI_UNIMEM_MACHINE does not name. */
static int um_prov_env_read_params(void)
{
    uint32_t variable = 16;
    for (const struct um_machine *const *m = um_machines_offered; *m; m++) {
        for (uint32_t i = 0; i < (*m)->params_count; i++, variable++) {
            const struct um_machine_param *param = &(*m)->params[i];
            const char *text = um_prov_env_text(param->key);
            if (param->set(text))
                return um_prov_env_refuse(variable, param->key, text ? text : "", param->allowed);
        }
    }
    return 0;
}

int um_prov_env_read(struct um_prov_env *env_p)
{
    static const char allowed[] = "1, 0, true, false, yes, no, on, off";
    struct um_prov_env env = {.machines = {{um_machines_offered[0]}, 1},
                              .port = {.private_copy = true},
                              .bodies = UM_BODIES_LEARN,
                              .space = {.adopt = true},
                              .linger = true};
    int ret = um_prov_env_read_machines(&env);
    if (ret == 0)
        ret = um_prov_env_read_params();
    if (ret)
        return ret;
    const char *text = um_prov_env_text("copy");
    if (text && um_prov_env_copy(text, &env))
        return um_prov_env_refuse(3, "copy", text, "auto, 1, 0, true, false, yes, no, on, off");
    text = um_prov_env_text("mapped");
    if (text && um_prov_env_mapped(text, &env))
        return um_prov_env_refuse(8, "mapped", text, "auto, 1, 0, true, false, yes, no, on, off");
    text = um_prov_env_text("stats");
    if (text && um_prov_env_bool(text, &env.stats))
        return um_prov_env_refuse(4, "stats", text, allowed);
    text = um_prov_env_text("linger");
    if (text && um_prov_env_bool(text, &env.linger))
        return um_prov_env_refuse(5, "linger", text, allowed);
    text = um_prov_env_text("adopt");
    if (text && um_prov_env_bool(text, &env.space.adopt))
        return um_prov_env_refuse(6, "adopt", text, allowed);
    text = um_prov_env_text("attach");
    if (text && um_prov_env_attach(text, env.port.attach))
        return um_prov_env_refuse(11, "attach", text,
                                  "off, abstract, the absolute path (up to 79 bytes) of a directory");
    text = um_prov_env_text("mpich_atomics");
    if (text && um_prov_env_bool(text, &env.mpich_atomics))
        return um_prov_env_refuse(7, "mpich_atomics", text, allowed);
    ret = um_prov_env_read_numbers(&env);
    if (ret)
        return ret;
    *env_p = env;
    return 0;
}
