/* weir/version.h - the version of these headers; CMake reads it from here. Peers need the same major.minor. */
#ifndef WEIR_VERSION_H
#define WEIR_VERSION_H

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0
#define WEIR_VERSION_STRING "0.1.0"

#endif
