# Language level, warnings, sanitizers: what every target of the tree is compiled with.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()
set(CMAKE_C_FLAGS_RELEASE "-O3 -g -DNDEBUG")

option(FOREBAY_WERROR "Treat warnings as errors" OFF)
option(FOREBAY_PERF "Build the benchmarks" OFF)
option(FOREBAY_BURN "Build the op burn, which spends CPU time: benchmarks" OFF)
option(FOREBAY_FUZZ "Build the fuzz targets (clang)" OFF)
option(FOREBAY_PYTHON_WHEEL "Install what the Python wheel carries, and nothing else" OFF)
set(FOREBAY_TIMEOUT_SCALE 1 CACHE STRING "What tests' time limits are multiplied by: the long forms of make soak")
set(FOREBAY_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
                    -Wno-missing-field-initializers -fno-strict-aliasing -ffp-contract=off
                    -fstack-protector-strong)
if(FOREBAY_WERROR)
  add_compile_options(-Werror)
endif()
if(FOREBAY_SANITIZE)
  add_compile_options(-fsanitize=${FOREBAY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FOREBAY_SANITIZE})
  add_compile_definitions(FBY_SANITIZED=1)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
