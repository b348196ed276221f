/* weir/weir.h - all host headers of weir. Kernels include weir/device/kernel.h. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include "weir/bootstrap.h"
#include "weir/collective.h"
#include "weir/comm.h"
#include "weir/connection.h"
#include "weir/device.h"
#include "weir/env.h"
#include "weir/error.h"
#include "weir/fifo.h"
#include "weir/future.h"
#include "weir/grid_barrier.h"
#include "weir/halo.h"
#include "weir/launcher.h"
#include "weir/layout.h"
#include "weir/log.h"
#include "weir/memory.h"
#include "weir/memory_channel.h"
#include "weir/nic.h"
#include "weir/port_channel.h"
#include "weir/proxy.h"
#include "weir/semaphore.h"
#include "weir/stream.h"
#include "weir/table.h"
#include "weir/transport.h"
#include "weir/window.h"

#endif
