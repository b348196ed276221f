/* pmix_abi.h - the part of PMIx that weir uses, as in libpmix.so.2, versions 2 to 5 of the standard.
 *
 * The declarations are written out here, so that every build of weir works with a launcher whose library is found at
 * run time. The layouts and numbers belong to the binary interface of that library; test/launch compares them with
 * pmix.h where it is installed. */
#ifndef WEIRI_BOOT_PMIX_ABI_H
#define WEIRI_BOOT_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIRI_PMIX_LIBRARY "libpmix.so.2"
#define WEIRI_PMIX_RANK_WILDCARD (UINT32_MAX - 1)
#define WEIRI_PMIX_GLOBAL 3
#define WEIRI_PMIX_JOB_SIZE "pmix.job.size"
#define WEIRI_PMIX_LOCAL_SIZE "pmix.local.size"
#define WEIRI_PMIX_LOCAL_RANK "pmix.lrank"
#define WEIRI_PMIX_COLLECT_DATA "pmix.collect"

enum { WEIRI_PMIX_BOOL = 1, WEIRI_PMIX_STRING = 3, WEIRI_PMIX_UINT16 = 13, WEIRI_PMIX_UINT32 = 14 };

typedef struct weiri_pmix_proc {
    char nspace[256];
    uint32_t rank;
} weiri_pmix_proc;

/* The union of the library may be smaller: of a value from it, only the member of its type may be read. */
typedef struct weiri_pmix_value {
    uint16_t type;
    union {
        bool flag;
        char *string;
        uint16_t u16;
        uint32_t u32;
        uint64_t room[8];
    } data;
} weiri_pmix_value;

/* Passed to the library one at a time, because the elements of its arrays have a different stride. */
typedef struct weiri_pmix_info {
    char key[512];
    uint32_t flags;
    weiri_pmix_value value;
} weiri_pmix_info;

typedef struct weiri_pmix_api {
    int (*init)(weiri_pmix_proc *self, weiri_pmix_info *info, size_t count);
    int (*finalize)(const weiri_pmix_info *info, size_t count);
    int (*put)(uint8_t scope, const char *key, weiri_pmix_value *value);
    int (*commit)(void);
    int (*fence)(const weiri_pmix_proc *procs, size_t proc_count, const weiri_pmix_info *info, size_t count);
    int (*get)(const weiri_pmix_proc *proc, const char *key, const weiri_pmix_info *info, size_t count,
               weiri_pmix_value **value);
    const char *(*error_string)(int status);
} weiri_pmix_api;

#endif
