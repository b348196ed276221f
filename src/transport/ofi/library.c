/* library.c - loads libfabric, and finds the provider that the environment names.
 *
 * The first query for providers takes about 100 ms, so the result is kept with the variables that led to it. The
 * library stays loaded, because its providers have threads and handlers. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/host/base/env.h"
#include "src/host/base/error.h"
#include "src/host/base/sock.h"
#include "src/transport/ofi/ofi.h"

#define OLDEST FI_VERSION(1, 14)
#define QUESTION_BYTES 512
#define NODE_BYTES 64

/* The modes of registration that this transport supports. Providers with a refused mode are refused by name. */
#define MR_MODES (FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define MR_REFUSED (FI_MR_RAW | FI_MR_ENDPOINT)

weiri_ofi_table weiri_ofi;

static const struct {
    const char *symbol;
    size_t offset;
} rows[] = {
    { "fi_getinfo", offsetof(weiri_ofi_table, getinfo) },   { "fi_freeinfo", offsetof(weiri_ofi_table, freeinfo) },
    { "fi_dupinfo", offsetof(weiri_ofi_table, dupinfo) },   { "fi_fabric", offsetof(weiri_ofi_table, fabric) },
    { "fi_strerror", offsetof(weiri_ofi_table, strerror) }, { "fi_version", offsetof(weiri_ofi_table, version) },
};

/* The last question and its answer. */
static struct {
    pthread_mutex_t mutex;
    bool loaded;
    char question[QUESTION_BYTES];
    char reason[WEIRI_OFI_REASON_BYTES];
    struct fi_info *info; /* NULL: no provider */
} found = { .mutex = PTHREAD_MUTEX_INITIALIZER };

weir_status weiri_ofi_fail(int error, const char *format, ...)
{
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error = error < 0 ? -error : error;
    weir_status status = error == FI_ENOMEM                             ? WEIR_ERR_NOMEM
                         : error == FI_ENOSYS || error == FI_EOPNOTSUPP ? WEIR_ERR_UNSUPPORTED
                                                                        : WEIR_ERR_SYSTEM;
    return weiri_fail(status, "%s: %s", text, weiri_ofi.strerror(error));
}

static bool load(const char *name)
{
    weiri_ofi_table table;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *text = dlerror();
        snprintf(found.reason, sizeof found.reason, "no libfabric: %s", text == NULL ? name : text);
        return false;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *address = dlsym(library, rows[i].symbol);
        if (address == NULL) {
            snprintf(found.reason, sizeof found.reason, "%s: has no %s", name, rows[i].symbol);
            dlclose(library);
            return false;
        }
        memcpy((char *)&table + rows[i].offset, &address, sizeof address);
    }
    weiri_ofi = table;
    return true;
}

/* The local address of connections as text; "" if this host has none. */
static bool choose_node(const weiri_env *env, char node[NODE_BYTES])
{
    weiri_address address;
    const char *name = env->interface[0] == '\0' ? NULL : env->interface;
    node[0] = '\0';
    if (weiri_sock_interface(name, 0, &address) != WEIR_OK) {
        if (name != NULL) {
            snprintf(found.reason, sizeof found.reason, "%s", weir_last_error());
        }
        return name == NULL;
    }
    inet_ntop(address.family == 6 ? AF_INET6 : AF_INET, address.ip, node, NODE_BYTES);
    if (address.scope != 0) {
        size_t used = strlen(node);
        snprintf(node + used, NODE_BYTES - used, "%%%u", address.scope);
    }
    return true;
}

/* Why this transport cannot use a provider; NULL if it can. */
static const char *unusable(const struct fi_info *info)
{
    if ((info->domain_attr->mr_mode & FI_MR_RAW) != 0) {
        return "needs raw keys (FI_MR_RAW), which are not supported";
    }
    if ((info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0) {
        return "registers memory with each endpoint (FI_MR_ENDPOINT), which is not supported";
    }
    if (info->ep_attr->max_msg_size < WEIRI_OFI_MESSAGE_BYTES) {
        return "does not support messages of 72 bytes";
    }
    return NULL;
}

/* Asks libfabric for a provider. Sets found.reason; NULL if no provider fits. */
static struct fi_info *ask(const char *provider, const char *node)
{
    struct fi_info *info = NULL;
    struct fi_info *hints = weiri_ofi.dupinfo(NULL);
    if (hints == NULL) {
        snprintf(found.reason, sizeof found.reason, "libfabric: out of memory");
        return NULL;
    }
    hints->caps = FI_MSG | FI_SEND | FI_RECV | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = MR_MODES | MR_REFUSED;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAW;
    hints->rx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAW;
    hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
    hints->tx_attr->inject_size = WEIRI_OFI_MESSAGE_BYTES;
    hints->fabric_attr->prov_name = (char *)(uintptr_t)provider;
    int error =
        weiri_ofi.getinfo(OLDEST, node[0] == '\0' ? NULL : node, NULL, node[0] == '\0' ? 0 : FI_SOURCE, hints, &info);
    if (error != 0 && node[0] != '\0') {
        /* Providers without IP addresses. */
        error = weiri_ofi.getinfo(OLDEST, NULL, NULL, 0, hints, &info);
    }
    hints->fabric_attr->prov_name = NULL;
    weiri_ofi.freeinfo(hints);
    if (error != 0) {
        snprintf(found.reason, sizeof found.reason,
                 "libfabric %u.%u: provider \"%s\" with messages and writes ordered behind writes not found: %s",
                 FI_MAJOR(weiri_ofi.version()), FI_MINOR(weiri_ofi.version()), provider, weiri_ofi.strerror(-error));
        return NULL;
    }
    const char *why_not = unusable(info);
    if (why_not != NULL) {
        snprintf(found.reason, sizeof found.reason, "provider \"%s\" of libfabric %s", info->fabric_attr->prov_name,
                 why_not);
        weiri_ofi.freeinfo(info);
        return NULL;
    }
    snprintf(found.reason, sizeof found.reason,
             "between any hosts, memory of GPUs by way of the CPU's: libfabric %u.%u, provider %s, %s%s%s",
             FI_MAJOR(weiri_ofi.version()), FI_MINOR(weiri_ofi.version()), info->fabric_attr->prov_name,
             info->domain_attr->name, node[0] == '\0' ? "" : " at ", node);
    return info;
}

/* Libraries of providers may replace the program's signal handlers when they are loaded: libinfinipath, on which
 * Debian's libfabric depends, catches SIGINT, SIGTERM and crashes, and calls exit in the handler, which can deadlock.
 */
static const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGPIPE, SIGTERM };

#define SIGNALS (sizeof signals / sizeof signals[0])

static void save_signals(struct sigaction actions[SIGNALS])
{
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)sigaction(signals[i], NULL, &actions[i]);
    }
}

static void restore_signals(const struct sigaction actions[SIGNALS])
{
    for (size_t i = 0; i < SIGNALS; i++) {
        (void)sigaction(signals[i], &actions[i], NULL);
    }
}

/* Answers the question anew; the caller holds found.mutex. */
static void answer(const weiri_env *env)
{
    char node[NODE_BYTES];
    struct sigaction actions[SIGNALS];
    save_signals(actions);
    if (found.info != NULL) {
        weiri_ofi.freeinfo(found.info);
        found.info = NULL;
    }
    if (!found.loaded) {
        found.loaded = load(env->ofi_library);
    }
    if (found.loaded && choose_node(env, node)) {
        found.info = ask(env->ofi_provider, node);
    }
    restore_signals(actions);
}

bool weiri_ofi_find(char *reason, struct fi_info **out)
{
    weiri_env env;
    char question[QUESTION_BYTES];
    if (weiri_env_read(&env) != WEIR_OK) {
        snprintf(reason, WEIRI_OFI_REASON_BYTES, "%s", weir_last_error());
        return false;
    }
    snprintf(question, sizeof question, "%s %s %s", env.ofi_library, env.ofi_provider, env.interface);
    pthread_mutex_lock(&found.mutex);
    if (strcmp(question, found.question) != 0) {
        answer(&env);
        memcpy(found.question, question, sizeof question);
    }
    bool works = found.info != NULL;
    snprintf(reason, WEIRI_OFI_REASON_BYTES, "%s", found.reason);
    if (works && out != NULL) {
        *out = weiri_ofi.dupinfo(found.info);
        if (*out == NULL) {
            snprintf(reason, WEIRI_OFI_REASON_BYTES, "libfabric: out of memory");
            works = false;
        }
    }
    pthread_mutex_unlock(&found.mutex);
    return works;
}
