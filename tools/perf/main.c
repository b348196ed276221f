/* main.c - weir-perf: measures weir on this machine.
 *
 *     weir-perf put -b 1K -e 128M -f 4 --check     put of these sizes, the fastest way for each
 *     weir-perf packets --shape all --json packets.json
 *     weir-perf packets --shape all --against packets.json     status 1 where this run is slower than that one
 *     weir-perf probe                              everything against the same kernels written by hand
 *     weir-perf allreduce --graph --compare nccl   a collective, beside NCCL's
 *     weir-perf allreduce --graph --tune FILE      the fastest form of each size, for WEIR_COLLECTIVE_TABLE
 *
 * This file has main and the tables of commands and options. A new command is a file tools/perf/NAME.c, a declaration
 * in perf/commands.h and a row here. */
#include "tools/perf/cases.h"
#include "tools/perf/commands.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const perf_command *const commands[] = {
    &perf_put,
    &perf_get,
    &perf_packets,
    &perf_semaphore,
    &perf_probe,
    &perf_fifo,
    &perf_port,
    &perf_rdma,
    &perf_window,
    &perf_gather,
    &perf_scatter,
    &perf_pages,
    &perf_pack,
    &perf_unpack,
    &perf_strided,
    &perf_halo,
    &perf_bootstrap,
    &perf_allreduce,
    &perf_allgather,
    &perf_reduce_scatter,
    &perf_all_to_all,
    &perf_broadcast,
    &perf_reduce,
    &perf_allgather_parts,
    &perf_reduce_scatter_parts,
    &perf_collective_gather,
    &perf_collective_scatter,
    &perf_sendrecv,
    &perf_collective_create,
};

/* Options of every command. */
static const char common[] = "--device --processes --rank --csv --json --plot --against";

typedef enum option_type { OPTION_NUMBER, OPTION_SIZE, OPTION_TEXT, OPTION_LIST, OPTION_FLAG } option_type;

typedef struct option_row {
    const char *name;
    option_type type;
    size_t field; /* offset in perf_options */
    const char *value;
    const char *help;
} option_row;

static const option_row option_rows[] = {
    { "-b", OPTION_SIZE, offsetof(perf_options, least), "MIN", "smallest size, in bytes or as 1K, 4M, 1G" },
    { "-e", OPTION_SIZE, offsetof(perf_options, most), "MAX", "largest size" },
    { "-f", OPTION_NUMBER, offsetof(perf_options, factor), "FACTOR", "factor between sizes; default 4" },
    { "--sizes", OPTION_LIST, offsetof(perf_options, sizes), "LIST", "only these sizes, as 1K,1M,128M" },
    { "--shape", OPTION_TEXT, offsetof(perf_options, shape), "LIST", "shapes; auto (by size, default); all" },
    { "--blocks", OPTION_LIST, offsetof(perf_options, blocks), "LIST", "blocks of a launch" },
    { "--ranks", OPTION_LIST, offsetof(perf_options, window_ranks), "LIST", "ranks of a window, of each device" },
    { "--threads", OPTION_LIST, offsetof(perf_options, threads), "LIST", "threads of a block" },
    { "--one-way", OPTION_FLAG, offsetof(perf_options, one_way), "", "one rank moves data; default: both at once" },
    { "-n", OPTION_NUMBER, offsetof(perf_options, iters), "ITERS", "timed launches; large sizes take a tenth" },
    { "-w", OPTION_NUMBER, offsetof(perf_options, warmup), "WARMUP", "untimed launches before them" },
    { "--check", OPTION_FLAG, offsetof(perf_options, check), "",
      "also launches that each have new data and a check; or also check timed launches" },
    { "--host", OPTION_FLAG, offsetof(perf_options, host), "", "host memory instead of device memory" },
    { "--plain", OPTION_FLAG, offsetof(perf_options, plain), "", "no cooperative launches" },
    { "-g", OPTION_LIST, offsetof(perf_options, ranks), "LIST", "numbers of ranks; for collectives one, default: all" },
    { "-d", OPTION_TEXT, offsetof(perf_options, dtype), "TYPE",
      "type of elements: f64 f32 f16 (default) bf16 f8e4m3 ..." },
    { "-o", OPTION_TEXT, offsetof(perf_options, op), "OP", "sum (default), prod, min, max, avg, scaled_sum" },
    { "--form", OPTION_TEXT, offsetof(perf_options, form), "LIST",
      "auto (default), once, packets, lines, slots; all; copies; or of gather" },
    { "--rows", OPTION_NUMBER, offsetof(perf_options, rows), "N",
      "ids of a gather, default 400000; rows of --parts-bytes" },
    { "--row-bytes", OPTION_LIST, offsetof(perf_options, row_bytes), "LIST", "sizes of rows; default 128" },
    { "--span", OPTION_LIST, offsetof(perf_options, spans), "LIST", "bytes of the table; default 512M" },
    { "--beside", OPTION_TEXT, offsetof(perf_options, beside), "WHAT",
      "a computation beside a collective or a gather: compute, gemm" },
    { "--sms", OPTION_LIST, offsetof(perf_options, sms), "LIST", "multiprocessors of the gather's stream; default 8" },
    { "--calibrate", OPTION_FLAG, offsetof(perf_options, calibrate), "", "measure reach_bytes and miss_ns of tables" },
    { "--cached", OPTION_LIST, offsetof(perf_options, cached), "LIST", "ids of a gather that have copies on the GPU" },
    { "--peer", OPTION_FLAG, offsetof(perf_options, peer), "", "gather rows of the next rank's device memory" },
    { "--counters", OPTION_FLAG, offsetof(perf_options, counters), "",
      "print the command that counts a row's requests" },
    { "--planes", OPTION_NUMBER, offsetof(perf_options, planes), "N", "pieces of a page; default 1" },
    { "--order", OPTION_TEXT, offsetof(perf_options, order), "LIST",
      "given (default), sorted, grouped, unique, auto; all" },
    { "--ids", OPTION_TEXT, offsetof(perf_options, ids), "uniform", "distinct (default); zipf; or a file of ids" },
    { "--lanes", OPTION_LIST, offsetof(perf_options, lanes), "LIST", "lanes that share a row; default 32" },
    { "--loads", OPTION_LIST, offsetof(perf_options, loads), "LIST", "rows under way of each group of lanes: 1, 2, 4" },
    { "--config", OPTION_TEXT, offsetof(perf_options, config), "LIST",
      "boxes of a pack: seed (default), C5 to C12, C12-shuffled, RUNxROWS@STRIDE; of a halo: z,x (default), y" },
    { "--layout", OPTION_TEXT, offsetof(perf_options, layout), "LIST",
      "of a box: v_hv (default), v_hv_hv, hi, hib, subarray; all; of parts: part (default), rank; "
      "of sendrecv: ring (default), pairs, fan, all, self" },
    { "--cube", OPTION_NUMBER, offsetof(perf_options, cube), "N", "side of the cube of these boxes; default 1024" },
    { "--size", OPTION_NUMBER, offsetof(perf_options, size), "N",
      "cells of a halo's box along each side; default 256" },
    { "--radius", OPTION_NUMBER, offsetof(perf_options, radius), "R", "ghosts of a halo on each side; default 1" },
    { "--peers", OPTION_TEXT, offsetof(perf_options, peers), "LIST",
      "contiguous,memcpy3d,seed (default), memcpy2d, rows, rows-sync, batch; of scatter and pages: batch, each, flat, "
      "circular, lines; of gather: bulk, batch, each, flat, circular, lines; all" },
    { "--cold", OPTION_FLAG, offsetof(perf_options, cold), "", "only with a cold cache" },
    { "--with", OPTION_TEXT, offsetof(perf_options, with), "FILE", "add the times that tools/torch-peers pack wrote" },
    { "--l2-fetch", OPTION_NUMBER, offsetof(perf_options, l2_fetch), "BYTES",
      "what the L2 of the GPU fetches for a sector of 32 bytes: 32, 64 or 128" },
    { "--parts", OPTION_NUMBER, offsetof(perf_options, parts), "N", "parts of a call; default 1" },
    { "--parts-bytes", OPTION_LIST, offsetof(perf_options, parts_bytes), "LIST",
      "a part of --rows rows of each rank for each of these bytes of a row" },
    { "--skew", OPTION_TEXT, offsetof(perf_options, skew), "WHAT",
      "ranks' shares of a part: even (default), linear, one (all of rank 0), or weights as 3,1" },
    { "--transfers", OPTION_NUMBER, offsetof(perf_options, transfers), "N",
      "transfers to each partner in a call; default 1" },
    { "--host-ranks", OPTION_NUMBER, offsetof(perf_options, host_ranks), "N", "treat each N ranks as a host" },
    { "--graph", OPTION_FLAG, offsetof(perf_options, graph), "", "replay graphs; default: launch one by one" },
    { "--register", OPTION_FLAG, offsetof(perf_options, registered), "", "register buffers with all ranks: zero-copy" },
    { "--map", OPTION_FLAG, offsetof(perf_options, map), "", "graphs map ordinary buffers: zero-copy" },
    { "--compare", OPTION_TEXT, offsetof(perf_options, compare), "nccl",
      "also measure NCCL, plain and with symmetric windows; nccl-zero: CTA policy zero; nccl-pinned: a tree, one "
      "channel" },
    { "--nccl-ctas", OPTION_NUMBER, offsetof(perf_options, nccl_ctas), "N", "most blocks of NCCL's kernels" },
    { "--match-nccl", OPTION_FLAG, offsetof(perf_options, match_nccl), "",
      "limit weir to as many blocks as NCCL's kernel of each size has" },
    { "--nccl", OPTION_TEXT, offsetof(perf_options, nccl), "FILE", "NCCL's library; default: libnccl.so.2" },
    { "--plot", OPTION_TEXT, offsetof(perf_options, plot), "FILE", "draw time and bandwidth; rows go to FILE.json" },
    { "--tune", OPTION_TEXT, offsetof(perf_options, tune), "FILE",
      "write the fastest choice for each size to this tuning file" },
    { "--device", OPTION_TEXT, offsetof(perf_options, device), "gpu|cpu", "default: gpu if there is one" },
    { "--processes", OPTION_FLAG, offsetof(perf_options, processes), "", "ranks are processes; default: threads" },
    { "--rank", OPTION_NUMBER, offsetof(perf_options, rank), "N", "run only this rank; WEIR_UNIQUE_ID names the job" },
    { "--csv", OPTION_TEXT, offsetof(perf_options, csv), "FILE", "also write results as CSV" },
    { "--json", OPTION_TEXT, offsetof(perf_options, json), "FILE", "also write results as JSON" },
    { "--against", OPTION_TEXT, offsetof(perf_options, against), "FILE", "fail if slower than the results in FILE" },
};

/* Whether the list of names, separated by blanks, contains `name`. */
static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool takes_option(const perf_command *command, const char *name)
{
    return has_name(common, name) || has_name(command->takes, name);
}

static void print_usage(FILE *file)
{
    fprintf(file, "usage: weir-perf COMMAND [OPTION]...\n\ncommands and their options:\n");
    for (size_t i = 0; i < ROWS(commands); i++) {
        fprintf(file, "  %-14s %s\n  %-14s %s\n", commands[i]->name, commands[i]->summary, "", commands[i]->takes);
    }
    fprintf(file, "  %-14s %s\n\noptions:\n", "all", common);
    for (size_t i = 0; i < ROWS(option_rows); i++) {
        fprintf(file, "  %-12s %-8s %s\n", option_rows[i].name, option_rows[i].value, option_rows[i].help);
    }
    fprintf(file, "\nshapes:\n");
    for (uint32_t i = 0; i < perf_case_count; i++) {
        fprintf(file, "  %-9s %-16s %s\n", perf_op_names[perf_cases[i].op], perf_cases[i].shape, perf_cases[i].help);
    }
}

#define SIZE_LIMIT ((uint64_t)1 << 40)

/* Parses a decimal number up to `max`; with `units`, K, M or G may follow. Returns the rest of the text, or NULL. */
static const char *parse_number(const char *text, uint64_t max, bool units, uint64_t *value)
{
    const char *digits = text;
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (number > (max - digit) / 10) {
            return NULL;
        }
        number = number * 10 + digit;
    }
    if (text == digits) {
        return NULL;
    }
    const char *const suffixes = "KMG";
    const char *suffix = units && *text != '\0' ? strchr(suffixes, *text) : NULL;
    if (suffix != NULL) {
        unsigned shift = 10u * (unsigned)(suffix - suffixes + 1);
        if (number > max >> shift) {
            return NULL;
        }
        number <<= shift;
        text++;
    }
    *value = number;
    return text;
}

static bool parse_list(const char *text, perf_list *list)
{
    list->count = 0;
    for (;;) {
        uint64_t value = 0;
        text = parse_number(text, SIZE_LIMIT, true, &value);
        if (text == NULL || value == 0 || list->count == PERF_LIST_MAX) {
            return false;
        }
        list->values[list->count++] = value;
        if (*text == '\0') {
            return true;
        }
        if (*text++ != ',') {
            return false;
        }
    }
}

/* Sets the option's field from `value`, which is NULL for a flag. */
static bool parse_value(const option_row *row, const char *value, perf_options *options)
{
    char *field = (char *)options + row->field;
    uint64_t number = 0;
    const char *rest = NULL;
    switch (row->type) {
    case OPTION_NUMBER:
        rest = parse_number(value, UINT32_MAX - 1, false, &number);
        *(uint32_t *)(void *)field = (uint32_t)number;
        return rest != NULL && *rest == '\0';
    case OPTION_SIZE:
        rest = parse_number(value, SIZE_LIMIT, true, &number);
        *(uint64_t *)(void *)field = number;
        return rest != NULL && *rest == '\0' && number != 0;
    case OPTION_TEXT:
        *(const char **)(void *)field = value;
        return *value != '\0';
    case OPTION_LIST:
        return parse_list(value, (perf_list *)(void *)field);
    case OPTION_FLAG:
        *(bool *)(void *)field = true;
        return true;
    }
    return false;
}

static bool parse_options(const perf_command *command, int count, char **arguments, perf_options *options)
{
    for (int i = 0; i < count; i++) {
        const option_row *row = NULL;
        for (size_t k = 0; k < ROWS(option_rows); k++) {
            if (strcmp(arguments[i], option_rows[k].name) == 0) {
                row = &option_rows[k];
            }
        }
        if (row == NULL) {
            fprintf(stderr, "weir-perf: unknown option '%s'; see weir-perf --help\n", arguments[i]);
            return false;
        }
        if (!takes_option(command, row->name)) {
            fprintf(stderr, "weir-perf: %s does not take %s\n", command->name, row->name);
            return false;
        }
        const char *value = NULL;
        if (row->type != OPTION_FLAG) {
            if (i + 1 == count) {
                fprintf(stderr, "weir-perf: %s needs a value: %s\n", row->name, row->value);
                return false;
            }
            value = arguments[++i];
        }
        if (!parse_value(row, value, options)) {
            fprintf(stderr, "weir-perf: '%s' is not a value of %s: %s\n", value, row->name, row->value);
            return false;
        }
    }
    if (options->device != NULL && strcmp(options->device, "gpu") != 0 && strcmp(options->device, "cpu") != 0) {
        fprintf(stderr, "weir-perf: '%s' is not a value of --device: gpu|cpu\n", options->device);
        return false;
    }
    return true;
}

static bool is_help(const char *argument) { return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0; }

int main(int argc, char **argv)
{
    if ((argc >= 2 && is_help(argv[1])) || (argc >= 3 && is_help(argv[2]))) {
        print_usage(stdout);
        return EXIT_SUCCESS;
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("weir-perf %s\n", weir_version());
        return EXIT_SUCCESS;
    }
    const perf_command *command = NULL;
    for (size_t i = 0; argc >= 2 && i < ROWS(commands); i++) {
        if (strcmp(argv[1], commands[i]->name) == 0) {
            command = commands[i];
        }
    }
    if (command == NULL) {
        print_usage(stderr);
        return EXIT_FAILURE;
    }
    perf_options options;
    memset(&options, 0, sizeof options);
    options.rank = PERF_NO_RANK;
    if (!parse_options(command, argc - 2, argv + 2, &options)) {
        return EXIT_FAILURE;
    }
    if (command->start != NULL) {
        return command->start(&options, argv);
    }
    return perf_start(command, &options, argv);
}
