// The transport ib as far as it needs no NIC: choice of port and GID from trees like those of sysfs, keys and
// addresses, and what it says where there is nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "src/transport/ib/ib_device.h"
#include "src/transport/ib/ib_wire.h"
}
#include "weir/error.h"

namespace {

namespace fs = std::filesystem;

bool says(const char *part)
{
    return strstr(weir_last_error(), part) != nullptr;
}

// A folder that looks like /sys, as far as the choice looks.
class IbTree : public ::testing::Test {
protected:
    void SetUp() override
    {
        std::string name = (fs::temp_directory_path() / "weir-ib-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        root = name;
    }

    void TearDown() override
    {
        fs::remove_all(root);
    }

    void write(const fs::path &file, const std::string &text)
    {
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }

    // `place`: below devices/, as "pci0000:15/0000:15:01.0/0000:18:00.0".
    void add_pci(const std::string &place, int node)
    {
        const fs::path folder = root / "devices" / place;
        write(folder / "numa_node", std::to_string(node));
        fs::create_directories(root / "bus/pci/devices");
        fs::create_directory_symlink(folder, root / "bus/pci/devices" / folder.filename());
    }

    fs::path add_nic(const std::string &name, const std::string &place, int node,
                     const std::string &state = "4: ACTIVE", const std::string &layer = "InfiniBand",
                     const std::string &rate = "400 Gb/sec (4X NDR)")
    {
        const fs::path folder = root / "class/infiniband" / name;
        add_port(folder / "ports/1", state, layer, rate);
        if (!place.empty()) {
            add_pci(place, node);
            fs::create_directory_symlink(root / "devices" / place, folder / "device");
        }
        return folder;
    }

    void add_port(const fs::path &folder, const std::string &state, const std::string &layer, const std::string &rate)
    {
        write(folder / "state", state);
        write(folder / "link_layer", layer);
        write(folder / "rate", rate);
    }

    void add_gid(const std::string &name, uint32_t index, const std::string &gid, const std::string &type)
    {
        const fs::path folder = root / "class/infiniband" / name / "ports/1";
        write(folder / "gids" / std::to_string(index), gid);
        if (!type.empty()) {
            write(folder / "gid_attrs/types" / std::to_string(index), type);
        }
    }

    std::string choose(const char *pci, uint32_t spread = 0, const char *wanted = nullptr)
    {
        weiri_ib_port port;
        const weir_status status = weiri_ib_choose(root.c_str(), wanted, pci, spread, &port);
        return status != WEIR_OK ? weir_status_name(status)
                                 : std::string(port.device) + ":" + std::to_string(port.port);
    }

    // Two sockets with two switches each; a GPU and a NIC below each switch, and a storage NIC on the first socket.
    void add_server()
    {
        const char *roots[] = { "pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:26/0000:26:01.0/0000:27:00.0",
                                "pci0000:a7/0000:a7:01.0/0000:a8:00.0", "pci0000:c6/0000:c6:01.0/0000:c7:00.0" };
        const char *nics[] = { "0000:18:00.0", "0000:29:00.0", "0000:aa:00.0", "0000:c9:00.0" };
        const char *gpus[] = { "0000:1b:00.0", "0000:2c:00.0", "0000:ad:00.0", "0000:cc:00.0" };
        for (int i = 0; i < 4; i++) {
            const std::string bus = roots[i];
            add_nic("mlx5_" + std::to_string(i), bus + "/0000:17:00.0/" + nics[i], i / 2);
            add_pci(bus + "/0000:17:01.0/" + gpus[i], i / 2);
        }
        add_nic("mlx5_10", "pci0000:00/0000:00:02.0/0000:05:00.0", 0, "4: ACTIVE", "Ethernet", "25 Gb/sec (1X EDR)");
        add_pci("pci0000:00/0000:00:05.0/0000:08:00.0", 1);
    }

    fs::path root;
};

TEST_F(IbTree, NearestNicOfEachGpu)
{
    add_server();
    EXPECT_EQ(choose("0000:1b:00.0"), "mlx5_0:1");
    EXPECT_EQ(choose("0000:2c:00.0"), "mlx5_1:1");
    EXPECT_EQ(choose("0000:ad:00.0", 7), "mlx5_2:1");
    EXPECT_EQ(choose("0000:cc:00.0"), "mlx5_3:1");
}

TEST_F(IbTree, NextNearestWhenTheNearestIsDown)
{
    add_server();
    write(root / "class/infiniband/mlx5_2/ports/1/state", "1: DOWN");
    // On the same node, behind another root complex.
    EXPECT_EQ(choose("0000:ad:00.0"), "mlx5_3:1");
    write(root / "class/infiniband/mlx5_3/ports/1/state", "2: INIT");
    // All others are on the other node: InfiniBand comes before the slower Ethernet, and two are alike.
    EXPECT_EQ(choose("0000:ad:00.0", 0), "mlx5_0:1");
    EXPECT_EQ(choose("0000:ad:00.0", 1), "mlx5_1:1");
    EXPECT_EQ(choose("0000:ad:00.0", 2), "mlx5_0:1");
}

TEST_F(IbTree, OneRootComplexComesBeforeOneNode)
{
    add_server();
    // GPU 8 is on node 1, but below the root complex of the storage NIC.
    EXPECT_EQ(choose("0000:08:00.0"), "mlx5_10:1");
}

TEST_F(IbTree, WithoutAPlaceDevicesAreSpread)
{
    add_server();
    EXPECT_EQ(choose("", 0), "mlx5_0:1");
    EXPECT_EQ(choose("", 3), "mlx5_3:1");
    EXPECT_EQ(choose("", 5), "mlx5_1:1");
    // A GPU that sysfs does not know (in a container, say) is as far from all.
    EXPECT_EQ(choose("0000:99:00.0", 2), "mlx5_2:1");
}

TEST_F(IbTree, FasterPortsComeFirst)
{
    add_nic("mlx5_0", "", -1, "4: ACTIVE", "Ethernet", "100 Gb/sec (4X EDR)");
    add_nic("mlx5_1", "", -1, "4: ACTIVE", "Ethernet", "200 Gb/sec (4X HDR)");
    EXPECT_EQ(choose("", 0), "mlx5_1:1");
    EXPECT_EQ(choose("", 1), "mlx5_1:1");
}

TEST_F(IbTree, TheEnvironmentChooses)
{
    add_server();
    add_port(root / "class/infiniband/mlx5_1/ports/2", "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)");
    EXPECT_EQ(choose("0000:cc:00.0", 0, "mlx5_10"), "mlx5_10:1");
    EXPECT_EQ(choose("0000:cc:00.0", 0, "mlx5_1:2"), "mlx5_1:2");
    // The nearest of a list, not its first.
    EXPECT_EQ(choose("0000:cc:00.0", 0, "mlx5_0,mlx5_3"), "mlx5_3:1");
    EXPECT_EQ(choose("0000:cc:00.0", 1, "mlx5_0,mlx5_1:2"), "mlx5_1:2");
    EXPECT_EQ(choose("", 0, "mlx4_0"), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("WEIR_IB_DEVICE=mlx4_0")) << weir_last_error();
    for (const char *wrong : { ",", "mlx5_0,,mlx5_1", ":1", "mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:256",
                               "mlx5_0:1000000001", "../mlx5_0" }) {
        EXPECT_EQ(choose("", 0, wrong), "WEIR_ERR_ENV") << wrong;
        EXPECT_TRUE(says("WEIR_IB_DEVICE=")) << weir_last_error();
    }
}

TEST_F(IbTree, WhyThereIsNone)
{
    EXPECT_EQ(choose(""), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("no RDMA device")) << weir_last_error();
    add_nic("mlx5_0", "", -1, "1: DOWN");
    EXPECT_EQ(choose(""), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("mlx5_0 port 1 is DOWN")) << weir_last_error();
    fs::remove_all(root / "class/infiniband/mlx5_0/ports");
    EXPECT_EQ(choose(""), "WEIR_ERR_UNSUPPORTED");
    EXPECT_TRUE(says("none of the 1 RDMA devices")) << weir_last_error();
}

class IbGid : public IbTree {
protected:
    void add(bool ethernet)
    {
        add_nic("mlx5_0", "", -1, "4: ACTIVE", ethernet ? "Ethernet" : "InfiniBand");
        ASSERT_EQ(weiri_ib_choose(root.c_str(), nullptr, "", 0, &port), WEIR_OK) << weir_last_error();
        ASSERT_EQ(port.ethernet, ethernet);
    }

    int find()
    {
        weiri_ib_gid gid;
        return weiri_ib_find_gid(root.c_str(), &port, nullptr, &gid) == WEIR_OK ? (int)gid.index : -1;
    }

    weiri_ib_port port;
};

TEST_F(IbGid, FarthestReachOfRoceV2)
{
    add(true);
    EXPECT_EQ(find(), -1);
    EXPECT_TRUE(says("mlx5_0 port 1 has no GID")) << weir_last_error();
    add_gid("mlx5_0", 9, "0000:0000:0000:0000:0000:ffff:0a01:0203", "IB/RoCE v1");
    EXPECT_EQ(find(), 9);
    add_gid("mlx5_0", 1, "fe80:0000:0000:0000:0a00:27ff:fe00:0001", "RoCE v2");
    EXPECT_EQ(find(), 1);
    add_gid("mlx5_0", 200, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2");
    EXPECT_EQ(find(), 200);
    add_gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2");
    add_gid("mlx5_0", 5, "0000:0000:0000:0000:0000:ffff:0a01:0204", "RoCE v2");
    EXPECT_EQ(find(), 3);
}

TEST_F(IbGid, BytesOfTheChosen)
{
    const uint8_t expected[16] = { 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0, 0x1f };
    const uint32_t index = 2, missing = 4, empty = 0;
    weiri_ib_gid gid;
    add(true);
    add_gid("mlx5_0", 0, "0000:0000:0000:0000:0000:0000:0000:0000", "");
    add_gid("mlx5_0", 1, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2");
    add_gid("mlx5_0", 2, "2001:0db8:0000:0000:0000:0000:abcd:001f", "IB/RoCE v1");
    ASSERT_EQ(weiri_ib_find_gid(root.c_str(), &port, &index, &gid), WEIR_OK) << weir_last_error();
    EXPECT_EQ(memcmp(gid.bytes, expected, sizeof expected), 0);
    EXPECT_EQ(gid.index, 2u);
    EXPECT_FALSE(gid.roce_v2);
    EXPECT_EQ(weiri_ib_find_gid(root.c_str(), &port, &missing, &gid), WEIR_ERR_UNSUPPORTED);
    EXPECT_TRUE(says("index 4")) << weir_last_error();
    EXPECT_EQ(weiri_ib_find_gid(root.c_str(), &port, &empty, &gid), WEIR_ERR_UNSUPPORTED);
}

TEST_F(IbGid, FirstOfInfiniBand)
{
    add(false);
    add_gid("mlx5_0", 0, "fe80:0000:0000:0000:506b:4b03:00c1:d2e4", "IB/RoCE v1");
    add_gid("mlx5_0", 1, "2001:0000:0000:0000:506b:4b03:00c1:d2e4", "IB/RoCE v1");
    EXPECT_EQ(find(), 0);
}

TEST_F(IbGid, MalformedOnesAreNotTaken)
{
    add(true);
    const char *wrong[] = { "", "fe80::1", "fe80:0000:0000:0000:0000:0000:0000",
                            "fe80:0000:0000:0000:0000:0000:0000:000g",
                            "fe80:0000:0000:0000:0000:0000:0000:0001:0002", "fe80-0000:0000:0000:0000:0000:0000:0001" };
    for (uint32_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        add_gid("mlx5_0", i, wrong[i], "RoCE v2");
    }
    EXPECT_EQ(find(), -1);
}

TEST(IbWire, KeyComesBack)
{
    const weiri_ib_key written = { 0x1122334455667788u, 0x99aabbccu, true };
    weiri_ib_key read = {};
    weiri_key key = {};
    weiri_ib_key_write(&written, 4096, &key);
    EXPECT_EQ(key.size, 4096u);
    ASSERT_EQ(weiri_ib_key_read(&key, &read), WEIR_OK);
    EXPECT_EQ(read.address, written.address);
    EXPECT_EQ(read.rkey, written.rkey);
    EXPECT_TRUE(read.flush);
}

// Flips of bits, other lengths, sizes past the end of memory.
TEST(IbWire, GarbledKeys)
{
    const weiri_ib_key written = { UINT64_MAX - 8192, 7, false };
    weiri_ib_key read;
    weiri_key key = {};
    weiri_ib_key_write(&written, 4096, &key);
    ASSERT_EQ(weiri_ib_key_read(&key, &read), WEIR_OK);
    for (uint32_t length = 0; length <= sizeof key.bytes + 1; length++) {
        weiri_key other = key;
        other.length = length;
        EXPECT_EQ(weiri_ib_key_read(&other, &read), length == key.length ? WEIR_OK : WEIR_ERR_CORRUPT) << length;
    }
    for (uint32_t bit = 0; bit < 16; bit++) { // the version, and the flags of which one is used
        weiri_key other = key;
        other.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        EXPECT_EQ(weiri_ib_key_read(&other, &read), bit == 8 ? WEIR_OK : WEIR_ERR_CORRUPT) << bit;
    }
    key.size = 8193;
    EXPECT_EQ(weiri_ib_key_read(&key, &read), WEIR_ERR_CORRUPT);
}

weiri_ib_address some_address()
{
    weiri_ib_address address = {};
    address.ethernet = true;
    address.mtu = 5;
    address.reads = 16;
    address.port = 1;
    address.lid = 0x1234;
    address.qpn = 0xfedcba;
    address.psn = 0xabcdef;
    for (uint8_t i = 0; i < 16; i++) {
        address.gid[i] = (uint8_t)(0xf0 + i);
    }
    return address;
}

TEST(IbWire, AddressComesBack)
{
    uint8_t bytes[WEIRI_ADDRESS_MAX];
    const weiri_ib_address written = some_address();
    weiri_ib_address read = {};
    const uint32_t size = weiri_ib_address_write(&written, bytes);
    ASSERT_EQ(weiri_ib_address_read(bytes, size, &read), WEIR_OK);
    EXPECT_EQ(read.ethernet, written.ethernet);
    EXPECT_EQ(read.mtu, written.mtu);
    EXPECT_EQ(read.reads, written.reads);
    EXPECT_EQ(read.port, written.port);
    EXPECT_EQ(read.lid, written.lid);
    EXPECT_EQ(read.qpn, written.qpn);
    EXPECT_EQ(read.psn, written.psn);
    EXPECT_EQ(memcmp(read.gid, written.gid, 16), 0);
    for (uint32_t length = 0; length <= sizeof bytes; length++) {
        EXPECT_EQ(weiri_ib_address_read(bytes, length, &read), length == size ? WEIR_OK : WEIR_ERR_CORRUPT) << length;
    }
}

TEST(IbWire, AddressesOutOfRange)
{
    struct {
        const char *what;
        void (*spoil)(weiri_ib_address *);
    } const cases[] = {
        { "mtu 0", [](weiri_ib_address *a) { a->mtu = 0; } },
        { "mtu 6", [](weiri_ib_address *a) { a->mtu = 6; } },
        { "no reads", [](weiri_ib_address *a) { a->reads = 0; } },
        { "port 0", [](weiri_ib_address *a) { a->port = 0; } },
        { "qpn 0", [](weiri_ib_address *a) { a->qpn = 0; } },
        { "qpn of 25 bits", [](weiri_ib_address *a) { a->qpn = 0x1000000; } },
        { "psn of 25 bits", [](weiri_ib_address *a) { a->psn = 0x1000000; } },
    };
    for (const auto &c : cases) {
        uint8_t bytes[WEIRI_ADDRESS_MAX];
        weiri_ib_address address = some_address(), read;
        c.spoil(&address);
        const uint32_t size = weiri_ib_address_write(&address, bytes);
        EXPECT_EQ(weiri_ib_address_read(bytes, size, &read), WEIR_ERR_CORRUPT) << c.what;
        EXPECT_TRUE(says("address")) << weir_last_error();
    }
}

} // namespace
