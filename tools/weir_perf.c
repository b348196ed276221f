/* weir_perf.c - weir-perf: measures what weir does on this machine.
 *
 *     weir-perf probe                      the generic device API against the same kernels written by hand
 *     weir-perf probe --device cpu --csv probe.csv
 *
 * This file has the table of commands and the table of options, main, and nothing else. A new command is a file
 * weir_perf_NAME.c, a declaration in weir_perf_common.h and a row here. */
#include "weir_perf_common.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const perf_command *const commands[] = {
    &perf_probe,
};

typedef enum option_type { OPTION_NUMBER, OPTION_TEXT, OPTION_SIZES, OPTION_FLAG } option_type;

typedef struct option_row {
    const char *name;
    option_type type;
    size_t field; /* offset in perf_options */
    const char *value;
    const char *help;
} option_row;

static const option_row option_rows[] = {
    { "--device", OPTION_TEXT, offsetof(perf_options, device), "gpu|cpu", "default: GPUs where there are any" },
    { "--blocks", OPTION_NUMBER, offsetof(perf_options, blocks), "N", "blocks of a launch" },
    { "--threads", OPTION_NUMBER, offsetof(perf_options, threads), "N", "threads of a block" },
    { "--iters", OPTION_NUMBER, offsetof(perf_options, iters), "N", "launches of a run; large sizes take fewer" },
    { "--sizes", OPTION_SIZES, offsetof(perf_options, sizes), "LIST", "bytes, as 1K,1M,128M" },
    { "--plain", OPTION_FLAG, offsetof(perf_options, plain), "", "no cooperative launches" },
    { "--csv", OPTION_TEXT, offsetof(perf_options, csv), "FILE", "write the results as CSV too" },
    { "--json", OPTION_TEXT, offsetof(perf_options, json), "FILE", "write the results as JSON too" },
    { "--rank", OPTION_NUMBER, offsetof(perf_options, rank), "N", "be this rank alone; WEIR_UNIQUE_ID says where" },
};

#define ROWS(table) (sizeof(table) / sizeof(table)[0])

static void print_usage(FILE *file)
{
    fprintf(file, "usage: weir-perf COMMAND [OPTION]...\n\ncommands:\n");
    for (size_t i = 0; i < ROWS(commands); i++) {
        fprintf(file, "  %-18s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(file, "\noptions:\n");
    for (size_t i = 0; i < ROWS(option_rows); i++) {
        fprintf(file, "  %-9s%-9s %s\n", option_rows[i].name, option_rows[i].value, option_rows[i].help);
    }
}

/* A decimal number up to `max`, followed by K, M or G when `units`. Returns what follows it, or NULL. */
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

static bool parse_sizes(const char *text, perf_sizes *sizes)
{
    sizes->count = 0;
    for (;;) {
        uint64_t bytes = 0;
        text = parse_number(text, (uint64_t)1 << 40, true, &bytes);
        if (text == NULL || bytes == 0 || sizes->count == PERF_SIZES_MAX) {
            return false;
        }
        sizes->bytes[sizes->count++] = bytes;
        if (*text == '\0') {
            return true;
        }
        if (*text++ != ',') {
            return false;
        }
    }
}

/* Sets the option's field from its value, which is NULL for a flag. */
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
    case OPTION_TEXT:
        *(const char **)(void *)field = value;
        return *value != '\0';
    case OPTION_SIZES:
        return parse_sizes(value, (perf_sizes *)(void *)field);
    case OPTION_FLAG:
        *(bool *)(void *)field = true;
        return true;
    }
    return false;
}

static bool parse_options(int count, char **arguments, perf_options *options)
{
    for (int i = 0; i < count; i++) {
        const option_row *row = NULL;
        for (size_t k = 0; k < ROWS(option_rows); k++) {
            if (strcmp(arguments[i], option_rows[k].name) == 0) {
                row = &option_rows[k];
            }
        }
        if (row == NULL) {
            fprintf(stderr, "weir-perf: no option '%s'; see weir-perf --help\n", arguments[i]);
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
            fprintf(stderr, "weir-perf: '%s' is no value for %s: %s\n", value, row->name, row->value);
            return false;
        }
    }
    if (options->device != NULL && strcmp(options->device, "gpu") != 0 && strcmp(options->device, "cpu") != 0) {
        fprintf(stderr, "weir-perf: '%s' is no value for --device: gpu|cpu\n", options->device);
        return false;
    }
    if (options->rank != PERF_NO_RANK && options->rank >= PERF_RANKS) {
        fprintf(stderr, "weir-perf: there are only ranks 0 to %u\n", PERF_RANKS - 1);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
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
    if (!parse_options(argc - 2, argv + 2, &options)) {
        return EXIT_FAILURE;
    }
    return perf_start(command, &options, argv);
}
