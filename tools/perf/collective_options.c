/* collective_options.c - options of weir-perf's collectives. */
#include "tools/perf/collective.h"

#include <string.h>

#define ROWS_MOST 16384u /* 64 parts of 2^40 bytes a row among 8 ranks: no sum leaves 64 bits */

/* clang-format off */
static const perf_operation operations[] = {
    { "allreduce", WEIR_ALLREDUCE, true, false, true, false, false },
    { "allgather", WEIR_ALLGATHER, false, true, false, false, false },
    { "reduce_scatter", WEIR_REDUCE_SCATTER, true, true, false, false, false },
    { "all_to_all", WEIR_ALL_TO_ALL, false, true, false, false, false },
    { "broadcast", WEIR_BROADCAST, false, false, false, false, false },
    { "reduce", WEIR_REDUCE, true, false, true, false, false },
    { "collective_gather", WEIR_GATHER, false, true, false, false, false },
    { "collective_scatter", WEIR_SCATTER, false, true, false, false, false },
    { "allgather_parts", WEIR_ALLGATHER, false, true, false, true, false },
    { "reduce_scatter_parts", WEIR_REDUCE_SCATTER, true, true, false, true, false },
    { "sendrecv", WEIR_ALL_TO_ALL, false, false, false, false, true },
};
/* clang-format on */

const char *const perf_dtype_names[WEIR_DTYPES] = { "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2",
                                                    "i8",  "u8",  "i32", "u32",  "i64",    "u64" };
const char *const perf_redop_names[WEIR_OPS] = { "sum", "prod", "min", "max", "avg", "scaled_sum" };
const char *const perf_form_names[PERF_FORMS] = { "auto", "once", "packets", "lines", "slots", "copies" };

/* The index of the name of `length` characters, or `count`. */
static uint32_t find_name(const char *const *names, uint32_t count, const char *name, size_t length)
{
    uint32_t i = 0;
    while (i < count && (strlen(names[i]) != length || strncmp(names[i], name, length) != 0)) {
        i++;
    }
    return i;
}

static bool take_name(const char *option, const char *name, const char *const *names, uint32_t count, uint32_t *out)
{
    if (name == NULL) {
        return true;
    }
    *out = find_name(names, count, name, strlen(name));
    if (*out < count) {
        return true;
    }
    fprintf(stderr, "weir-perf: '%s' is not a value of %s; values are", name, option);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stderr, "%s %s", i == 0 ? "" : ",", names[i]);
    }
    fprintf(stderr, "\n");
    return false;
}

static bool take_forms(const char *list, perf_wish *out)
{
    out->forms[0] = WEIR_FORM_AUTO;
    out->form_count = 1;
    if (list == NULL) {
        return true;
    }
    out->form_count = 0;
    out->all_forms = strcmp(list, "all") == 0;
    for (uint32_t i = WEIR_FORM_ONCE; out->all_forms && i <= WEIR_FORM_SLOTS; i++) {
        if (out->what->once || i != WEIR_FORM_ONCE) {
            out->forms[out->form_count++] = (weir_collective_form)i;
        }
    }
    while (!out->all_forms && *list != '\0') {
        const size_t length = strcspn(list, ",");
        const uint32_t form = find_name(perf_form_names, PERF_FORMS, list, length);
        if (form == PERF_FORMS || out->form_count == ROWS(out->forms)) {
            fprintf(stderr,
                    "weir-perf: --form '%.*s' is unknown; forms are auto, once, packets, lines, slots, "
                    "copies, all\n",
                    (int)length, list);
            return false;
        }
        out->forms[out->form_count++] = (weir_collective_form)form;
        list += length;
        list += *list == ',';
    }
    return out->form_count != 0;
}

static bool has_form(const perf_wish *wish, weir_collective_form form)
{
    bool found = false;
    for (uint32_t i = 0; i < wish->form_count; i++) {
        found = found || wish->forms[i] == form;
    }
    return found;
}

/* Why the options do not fit copy engines, or NULL. */
static const char *refuse_copies(const perf_options *options, const perf_wish *wish)
{
    if (!has_form(wish, WEIR_FORM_COPIES)) {
        return NULL;
    }
    if (wish->what->uneven || (wish->what->reduces && wish->what->kind != WEIR_ALLREDUCE)) {
        return "copy engines carry no parts and, apart from allreduce, no reductions";
    }
    return options->tune != NULL  ? "--tune writes forms of kernels; it does not take copies"
           : !options->registered ? "--form copies needs --register"
                                  : NULL;
}

/* Why --form does not fit an exchange, or NULL. */
static const char *refuse_form(const perf_wish *wish)
{
    for (uint32_t i = 0; i < wish->form_count && wish->what->transfers; i++) {
        if (wish->forms[i] != WEIR_FORM_AUTO && wish->forms[i] != WEIR_FORM_COPIES) {
            return "--form of sendrecv is auto or copies";
        }
    }
    return NULL;
}

/* Why --map does not fit, or NULL. */
static const char *refuse_map(const perf_options *options, const perf_operation *what)
{
    const bool maps =
        !what->uneven && what->kind != WEIR_REDUCE && what->kind != WEIR_GATHER && what->kind != WEIR_SCATTER;
    return !options->map         ? NULL
           : !maps               ? "--map: this operation maps no buffers"
           : options->registered ? "--map is for ordinary buffers; it does not go with --register"
           : !options->graph     ? "--map needs --graph"
                                 : NULL;
}

/* Why --compare does not fit, or NULL. */
static const char *refuse_compared(const perf_options *options, const perf_operation *what)
{
    if (options->compare == NULL || strcmp(options->compare, "nccl") == 0) {
        return NULL;
    }
    const bool pinned = strcmp(options->compare, "nccl-pinned") == 0;
    if (!pinned && strcmp(options->compare, "nccl-zero") != 0) {
        return "--compare knows nccl, nccl-zero and nccl-pinned";
    }
    if (options->match_nccl || options->nccl_ctas != 0) {
        return "--match-nccl and --nccl-ctas go with --compare nccl";
    }
    if (pinned) {
        return what->kind == WEIR_ALLREDUCE ? NULL : "--compare nccl-pinned measures allreduce";
    }
    const bool copied = what->kind == WEIR_ALLGATHER || what->kind == WEIR_ALL_TO_ALL || what->kind == WEIR_GATHER ||
                        what->kind == WEIR_SCATTER;
    return copied && !what->uneven && !what->transfers
               ? NULL
               : "--compare nccl-zero measures allgather, all_to_all, collective_gather and collective_scatter";
}

/* Why --parts-bytes does not fit, or NULL. */
static const char *refuse_parts_bytes(const perf_options *options, const perf_wish *wish)
{
    const uint64_t element = weir_dtype_bytes((weir_dtype)wish->dtype);
    if (options->parts_bytes.count == 0) {
        return options->rows != 0 ? "--rows goes with --parts-bytes" : NULL;
    }
    for (uint32_t i = 0; i < options->parts_bytes.count; i++) {
        if (options->parts_bytes.values[i] % element != 0) {
            return "--parts-bytes are multiples of the bytes of an element";
        }
    }
    return options->rows == 0          ? "--parts-bytes needs --rows, the rows of each rank"
           : options->rows > ROWS_MOST ? "--rows with --parts-bytes is at most 16384"
           : options->parts != 0 || options->sizes.count != 0 || options->least != 0 || options->most != 0
               ? "--parts-bytes gives number and sizes of the parts, in the place of --parts, --sizes, -b and -e"
               : NULL;
}

/* Why --beside does not fit, or NULL. */
static const char *refuse_beside(const perf_options *options)
{
    return options->beside == NULL                ? NULL
           : !perf_compute_knows(options->beside) ? "--beside is compute or gemm"
           : options->tune != NULL || options->compare != NULL
               ? "--beside measures weir alone, without --compare and --tune"
               : NULL;
}

bool perf_take_wish(const char *command, const perf_options *options, perf_wish *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < ROWS(operations); i++) {
        if (strcmp(operations[i].name, command) == 0) {
            out->what = &operations[i];
        }
    }
    out->dtype = WEIR_F16;
    out->op = WEIR_SUM;
    if (!take_name("-d", options->dtype, perf_dtype_names, ROWS(perf_dtype_names), &out->dtype) ||
        !take_name("-o", options->op, perf_redop_names, ROWS(perf_redop_names), &out->op) ||
        !take_forms(options->form == NULL && options->tune != NULL ? "all" : options->form, out)) {
        return false;
    }
    const char *refused = NULL;
    if (options->op != NULL && !out->what->reduces) {
        refused = "-o is only for operations that reduce";
    } else if (out->op == WEIR_SCALED_SUM && out->dtype > WEIR_BF16) {
        refused = "-o scaled_sum takes f64, f32, f16 and bf16";
    } else if (refuse_compared(options, out->what) != NULL) {
        refused = refuse_compared(options, out->what);
    } else if (refuse_parts_bytes(options, out) != NULL) {
        refused = refuse_parts_bytes(options, out);
    } else if (refuse_beside(options) != NULL) {
        refused = refuse_beside(options);
    } else if (options->nccl_ctas != 0 && options->compare == NULL) {
        refused = "--nccl-ctas needs --compare nccl";
    } else if (options->nccl != NULL && options->compare == NULL) {
        refused = "--nccl needs --compare nccl";
    } else if (options->match_nccl && (options->compare == NULL || options->blocks.count != 0)) {
        refused = "--match-nccl needs --compare nccl, and takes the place of --blocks";
    } else if (options->ranks.count > 1 || (options->threads.count > 1 && options->tune == NULL)) {
        refused = "-g and --threads take one number";
    } else if (out->what->transfers && !perf_sendrecv_knows(options->layout)) {
        refused = "--layout is ring, pairs, fan, all or self";
    } else if (options->transfers > PERF_TRANSFERS_MAX) {
        refused = "--transfers is at most 1024";
    } else if (options->tune != NULL && out->what->uneven) {
        refused = "--tune measures even operations, whose rows parts take too";
    } else if (options->tune != NULL && options->compare != NULL) {
        refused = "--tune measures weir alone, without --compare";
    } else if (options->tune != NULL && has_form(out, WEIR_FORM_AUTO)) {
        refused = "--tune chooses forms by itself; do not combine it with --form";
    } else {
        refused = refuse_form(out) != NULL ? refuse_form(out) : refuse_copies(options, out);
        refused = refused == NULL ? refuse_map(options, out->what) : refused;
    }
    if (refused != NULL) {
        fprintf(stderr, "weir-perf: %s: %s\n", command, refused);
    }
    return refused == NULL;
}
