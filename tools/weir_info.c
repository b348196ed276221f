/* weir_info.c - weir-info: prints the devices and transports that weir finds on this machine, and its settings.
 * weir-info --nic: tests step by step whether kernels of each device can post to an RDMA NIC.
 *
 * Sections: version, devices, links between GPUs, transports, the transport that joins each pair of ranks, launcher,
 * environment, and the memory that weir takes for a rank on each device. A part that does not work is printed with the
 * reason. The exit status is non-zero only if a present device cannot be used. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

enum { DEVICES_MAX = 64 };

/* An open device, or the reason why it is not open. */
typedef struct entry {
    char name[16];
    weir_device *device;
    weir_device_info info;
} entry;

static void print_version(void)
{
    printf("weir %s", weir_version());
    if (strcmp(weir_version(), WEIR_VERSION_STRING) != 0) {
        printf(" (weir-info was built with the headers of %s)", WEIR_VERSION_STRING);
    }
    printf("\n");
}

static void print_device(const entry *e)
{
    const weir_device_info *info = &e->info;
    printf("  %-6s  %s\n", e->name, info->model);
    printf("          uuid ");
    for (size_t i = 0; i < sizeof(info->uuid); i++) {
        printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", info->uuid[i]);
    }
    printf("\n          %.1f GiB of memory", (double)info->memory_bytes / (1 << 30));
    if (info->driver_version != 0) {
        printf(", %" PRIu32 " multiprocessors, driver for CUDA %" PRIu32 ".%" PRIu32, info->multiprocessors,
               info->driver_version / 1000, info->driver_version % 1000 / 10);
    }
    printf("\n          up to %" PRIu32 " threads a block, %" PRIu32 " at the same time\n", info->block_threads,
           info->resident_threads);
}

/* Opens all devices of a kind behind the `count` in `entries`; returns the new count. */
static uint32_t open_devices(const char *kind, entry *entries, uint32_t count, bool *good)
{
    uint32_t there = 0;
    char name[16];
    if (weir_device_count(kind, &there) != WEIR_OK) {
        printf("  %s: %s\n", kind, weir_last_error());
        *good = false;
        return count;
    }
    for (uint32_t i = 0; i < (there != 0 ? there : 1) && count < DEVICES_MAX; i++) {
        entry *e = &entries[count];
        (void)snprintf(name, sizeof(name), "%s:%" PRIu32, kind, i);
        memcpy(e->name, name, sizeof(name));
        if (weir_device_open(name, NULL, &e->device) == WEIR_OK) {
            weir_device_get_info(e->device, &e->info, sizeof e->info);
            print_device(e);
            count++;
        } else { /* this also gives the reason why there is none */
            printf("  %-6s  %s\n", there != 0 ? name : kind, weir_last_error());
            *good = *good && there == 0;
        }
    }
    return count;
}

static bool is_gpu(const entry *e) { return strcmp(e->info.kind, "gpu") == 0; }

/* A row for each pair of GPUs; they are few. */
static void print_links(const entry *entries, uint32_t count)
{
    uint32_t pairs = 0;
    printf("\nLinks between GPUs\n");
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < count; k++) {
            if (i == k || !is_gpu(&entries[i]) || !is_gpu(&entries[k])) {
                continue;
            }
            weir_status status = weir_device_reaches(entries[i].device, entries[k].device);
            printf("  %s -> %s  %s\n", entries[i].name, entries[k].name,
                   status == WEIR_OK ? "loads and stores" : weir_last_error());
            pairs++;
        }
    }
    if (pairs == 0) {
        printf("  none: there are fewer than two GPUs\n");
    }
}

static void print_transports(void)
{
    weir_transport_info info;
    printf("\nTransports\n");
    for (uint32_t i = 0; weir_transport_get(i, &info) == WEIR_OK; i++) {
        printf("  %-6s  %s%s%s\n", info.name, info.works ? "works" : "does not work",
               info.reason[0] != '\0' ? ": " : "", info.reason);
        printf("          carries %s%s%s%s\n", info.memory_channels ? "memory channels" : "",
               info.memory_channels && info.port_channels ? " and " : "", info.port_channels ? "port channels" : "",
               info.port_channels ? (info.adds ? ", with adds" : ", without adds") : "");
    }
}

/* A row for each device: its transport to ranks of this host, including itself, and to other hosts. Below it the reason
 * if there is none. */
static void print_choices(const entry *entries, uint32_t count)
{
    weir_transport_info info;
    printf("\nTransports between ranks, by their devices\n");
    for (uint32_t i = 0; i < count; i++) {
        weir_device *device = entries[i].device;
        printf("  %-6s  ", entries[i].name);
        for (uint32_t k = 0; k < count; k++) {
            weir_status status = weir_transport_find(device, entries[k].device, &info);
            printf("%s %s, ", entries[k].name, status == WEIR_OK ? info.name : "none");
        }
        printf("other hosts %s\n", weir_transport_find(device, NULL, &info) == WEIR_OK ? info.name : "none");
        for (uint32_t k = 0; k <= count; k++) {
            if (weir_transport_find(device, k < count ? entries[k].device : NULL, &info) != WEIR_OK) {
                printf("          to %s: %s\n", k < count ? entries[k].name : "other hosts", weir_last_error());
            }
        }
    }
}

/* The launcher that started this process as a rank. A launcher that does not answer is no fault of this machine. */
static void print_launcher(void)
{
    weir_launcher_info info;
    printf("\nLauncher\n");
    if (weir_launcher_get(&info) != WEIR_OK) {
        printf("  %s\n", weir_last_error());
    } else if (info.size == 0) {
        printf("  none: this process was not started by mpirun, srun, torchrun, or with WEIR_RANK and WEIR_SIZE\n");
    } else if (info.local_size == 0) {
        printf("  %s: rank %" PRIu32 " of %" PRIu32 "\n", info.source, info.rank, info.size);
    } else {
        printf("  %s: rank %" PRIu32 " of %" PRIu32 ", %" PRIu32 " of %" PRIu32 " on this host\n", info.source,
               info.rank, info.size, info.local_rank, info.local_size);
    }
}

static void print_environment(void)
{
    weir_env_row row;
    printf("\nEnvironment\n");
    for (uint32_t i = 0; weir_env_get(i, &row) == WEIR_OK; i++) {
        printf("  %-20s %-6s default \"%s\"", row.name, row.type, row.fallback);
        if (row.value != NULL) {
            printf(", set to \"%s\"", row.value);
        }
        printf("\n  %-20s %s\n", "", row.help);
    }
}

/* A communicator of one rank on the device. */
static weir_status measure(const entry *e, weir_comm_usage *usage)
{
    weir_unique_id id;
    weir_bootstrap *bootstrap = NULL;
    weir_comm *comm = NULL;
    weir_status status = weir_unique_id_create("127.0.0.1", &id);
    if (status != WEIR_OK) {
        return status;
    }
    status = weir_bootstrap_create(id.text, 0, 1, NULL, &bootstrap);
    if (status != WEIR_OK) {
        weir_unique_id_discard(&id);
        return status;
    }
    status = weir_comm_create(bootstrap, e->device, NULL, &comm);
    if (status == WEIR_OK) {
        weir_comm_get_usage(comm, usage);
    }
    weir_comm_destroy(comm);
    weir_bootstrap_destroy(bootstrap);
    return status;
}

static bool print_usage_of_memory(const entry *entries, uint32_t count)
{
    bool good = true;
    printf("\nMemory that weir itself takes for a rank\n");
    for (uint32_t i = 0; i < count; i++) {
        weir_comm_usage usage;
        if (measure(&entries[i], &usage) == WEIR_OK) {
            printf("  %-6s  %.1f KiB of host memory, %.1f KiB of device memory\n", entries[i].name,
                   (double)usage.host_bytes / 1024, (double)usage.device_bytes / 1024);
        } else {
            printf("  %-6s  %s\n", entries[i].name, weir_last_error());
            good = false;
        }
    }
    return good;
}

static void print_step(void *context, const weir_nic_step *step)
{
    (void)context;
    printf("  %-20s  %s: %s\n", step->name, step->status == WEIR_OK ? "works" : weir_status_name(step->status),
           step->text);
}

static bool walk_nics(const entry *entries, uint32_t count)
{
    bool good = count != 0;
    (void)setenv("WEIR_PORT_ENGINE", "device", 1);
    for (uint32_t i = 0; i < count; i++) {
        printf("\nKernels of %s post to a NIC\n", entries[i].name);
        weir_status status = weir_nic_check(entries[i].device, print_step, NULL);
        printf("  %s\n", status == WEIR_OK ? "they can" : "they cannot: WEIR_PORT_ENGINE=device uses the proxy");
        good = good && status == WEIR_OK;
    }
    return good;
}

int main(int argc, char **argv)
{
    static entry entries[DEVICES_MAX];
    bool good = true;
    const bool nic = argc == 2 && strcmp(argv[1], "--nic") == 0;
    if (argc != 1 && !nic) {
        fprintf(stderr,
                "usage: %s [--nic]\nPrints what weir finds on this machine; with --nic, whether kernels can post to an "
                "RDMA NIC\nby themselves, and otherwise which step fails.\n",
                argv[0]);
        return 2;
    }
    print_version();
    printf("\nDevices\n");
    uint32_t count = open_devices("gpu", entries, 0, &good);
    count = open_devices("cpu", entries, count, &good);
    if (nic) {
        good = walk_nics(entries, count) && good;
    } else {
        print_links(entries, count);
        print_transports();
        print_choices(entries, count);
        print_launcher();
        print_environment();
        good = print_usage_of_memory(entries, count) && good;
    }
    for (uint32_t i = 0; i < count; i++) {
        weir_device_close(entries[i].device);
    }
    return good ? 0 : 1;
}
