/* fake_pmix.c - a libpmix.so.2 for tests: ranks meet in the folder WEIR_TEST_PMIX_DIR, and WEIR_TEST_PMIX selects a
 * fault.
 *
 *     WEIR_TEST_PMIX=CALL:hang       the call never returns
 *     WEIR_TEST_PMIX=CALL:ERROR      the call returns that number
 *     WEIR_TEST_PMIX=KEY:type        the stored value has another type
 *     WEIR_TEST_PMIX=KEY:TEXT        the stored value is TEXT, or its number if a number is expected
 *     WEIR_TEST_PMIX=KEY:            nothing is stored
 *
 * WEIR_TEST_PMIX_SIZE is the number of ranks. All of them are on one host. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/host/boot/pmix_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define NOT_FOUND (-46)

EXPORT int PMIx_Init(weiri_pmix_proc *self, weiri_pmix_info *info, size_t count);
EXPORT int PMIx_Finalize(const weiri_pmix_info *info, size_t count);
EXPORT int PMIx_Put(uint8_t scope, const char *key, weiri_pmix_value *value);
EXPORT int PMIx_Commit(void);
EXPORT int PMIx_Fence(const weiri_pmix_proc *procs, size_t proc_count, const weiri_pmix_info *info, size_t count);
EXPORT int PMIx_Get(const weiri_pmix_proc *proc, const char *key, const weiri_pmix_info *info, size_t count,
                    weiri_pmix_value **value);
EXPORT const char *PMIx_Error_string(int status);

static char put_key[64];
static char put_text[512];
static unsigned fences;

static void sleep_ms(long ms)
{
    const struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    (void)nanosleep(&time, NULL);
}

static long number_of(const char *name, long fallback)
{
    const char *text = getenv(name);
    return text != NULL ? strtol(text, NULL, 10) : fallback;
}

/* The fault of `name` in WEIR_TEST_PMIX, or NULL. */
static const char *fault(const char *name)
{
    const char *text = getenv("WEIR_TEST_PMIX");
    const size_t length = strlen(name);
    return text != NULL && strncmp(text, name, length) == 0 && text[length] == ':' ? text + length + 1 : NULL;
}

/* 0, or the error that the call must return. */
static int call(const char *name)
{
    const char *what = fault(name);
    while (what != NULL && strcmp(what, "hang") == 0) {
        sleep_ms(1000);
    }
    return what != NULL ? (int)strtol(what, NULL, 10) : 0;
}

static void path_of(char *path, size_t bytes, const char *name, long rank)
{
    const char *folder = getenv("WEIR_TEST_PMIX_DIR");
    (void)snprintf(path, bytes, "%s/%s.%ld", folder != NULL ? folder : "/nonexistent", name, rank);
}

int PMIx_Init(weiri_pmix_proc *self, weiri_pmix_info *info, size_t count)
{
    (void)info;
    (void)count;
    (void)snprintf(self->nspace, sizeof self->nspace, "fake");
    self->rank = (uint32_t)number_of("PMIX_RANK", 0);
    return call("PMIx_Init");
}

int PMIx_Finalize(const weiri_pmix_info *info, size_t count)
{
    (void)info;
    (void)count;
    return call("PMIx_Finalize");
}

int PMIx_Put(uint8_t scope, const char *key, weiri_pmix_value *value)
{
    if (scope != WEIRI_PMIX_GLOBAL || value->type != WEIRI_PMIX_STRING) {
        return -1;
    }
    (void)snprintf(put_key, sizeof put_key, "%s", key);
    (void)snprintf(put_text, sizeof put_text, "%s", value->data.string);
    return call("PMIx_Put");
}

int PMIx_Commit(void)
{
    char path[512];
    path_of(path, sizeof path, put_key, number_of("PMIX_RANK", 0));
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return -errno;
    }
    (void)fputs(put_text, file);
    (void)fclose(file);
    return call("PMIx_Commit");
}

/* Each rank writes a file and waits for the files of all ranks. */
int PMIx_Fence(const weiri_pmix_proc *procs, size_t proc_count, const weiri_pmix_info *info, size_t count)
{
    char name[64];
    char path[512];
    if (procs != NULL || proc_count != 0 || count != 1 || strcmp(info->key, WEIRI_PMIX_COLLECT_DATA) != 0 ||
        info->value.type != WEIRI_PMIX_BOOL || !info->value.data.flag) {
        return -1;
    }
    const int status = call("PMIx_Fence");
    (void)snprintf(name, sizeof name, "fence%u", fences++);
    path_of(path, sizeof path, name, number_of("PMIX_RANK", 0));
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return -errno;
    }
    (void)fclose(file);
    for (long rank = 0; rank < number_of("WEIR_TEST_PMIX_SIZE", 1);) {
        path_of(path, sizeof path, name, rank);
        if (access(path, F_OK) == 0) {
            rank++;
        } else {
            sleep_ms(2);
        }
    }
    return status;
}

static int get_number(const char *key, const char *what, weiri_pmix_value *value)
{
    const bool is_rank = strcmp(key, WEIRI_PMIX_LOCAL_RANK) == 0;
    const char *name = is_rank ? "PMIX_RANK" : "WEIR_TEST_PMIX_SIZE";
    const long number = what != NULL && strcmp(what, "type") != 0 ? strtol(what, NULL, 10) : number_of(name, 1);
    value->type = what != NULL && strcmp(what, "type") == 0 ? 5 : is_rank ? WEIRI_PMIX_UINT16 : WEIRI_PMIX_UINT32;
    if (is_rank) {
        value->data.u16 = (uint16_t)number;
    } else {
        value->data.u32 = (uint32_t)number;
    }
    return 0;
}

static int get_text(const weiri_pmix_proc *proc, const char *key, const char *what, weiri_pmix_value *value)
{
    char path[512];
    char text[512] = "";
    path_of(path, sizeof path, key, (long)proc->rank);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return NOT_FOUND;
    }
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    (void)fclose(file);
    if (what != NULL && strcmp(what, "type") == 0) {
        value->type = 5;
        return 0;
    }
    value->type = WEIRI_PMIX_STRING;
    value->data.string = strdup(what != NULL ? what : text);
    return value->data.string != NULL ? 0 : -32;
}

int PMIx_Get(const weiri_pmix_proc *proc, const char *key, const weiri_pmix_info *info, size_t count,
             weiri_pmix_value **value)
{
    const char *what = fault(key);
    (void)info;
    (void)count;
    if (call("PMIx_Get") != 0 || (what != NULL && what[0] == '\0')) {
        return NOT_FOUND;
    }
    weiri_pmix_value *v = (weiri_pmix_value *)calloc(1, sizeof *v);
    if (v == NULL) {
        return -32;
    }
    const int status = strncmp(key, "pmix.", 5) == 0 ? get_number(key, what, v) : get_text(proc, key, what, v);
    if (status != 0) {
        free(v);
        return status;
    }
    *value = v;
    return 0;
}

const char *PMIx_Error_string(int status) { return status == NOT_FOUND ? "NOT-FOUND" : "FAKE-ERROR"; }
