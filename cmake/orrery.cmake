# Warnings, sanitizers and floating-point rules for all of our targets. Contraction is off everywhere, so that a
# simulated time or a kernel's result does not depend on whether the compiler emits a fused multiply-add. -Wno-restrict:
# -Wrestrict gives false positives on std::string concatenation in g++ 12.
add_library(orrery_options INTERFACE)
set(orrery_warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Wno-missing-field-initializers -Wno-restrict)
target_compile_options(
  orrery_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${orrery_warnings};-ffp-contract=off;-fstack-protector-strong>"
                           "$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
target_include_directories(orrery_options INTERFACE ${PROJECT_SOURCE_DIR})
if(ORRERY_FUZZ)  # clang has other warnings than g++, which decides what is an error
  target_compile_options(orrery_options INTERFACE -Wno-error -Wno-unknown-warning-option -fno-omit-frame-pointer
                                                  -fsanitize=fuzzer-no-link,address,undefined
                                                  -fno-sanitize-recover=undefined)
  target_link_options(orrery_options INTERFACE -fsanitize=address,undefined)
endif()
if(ORRERY_SANITIZE)
  target_compile_options(orrery_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                                  -fno-omit-frame-pointer)
  target_link_options(orrery_options INTERFACE -fsanitize=address,undefined)
endif()

# orrery_room(core DIRECTORIES . PUBLIC deps… PRIVATE deps…): one static library of all sources in the given folders.
function(orrery_room name)
  cmake_parse_arguments(ROOM "" "" "DIRECTORIES;PUBLIC;PRIVATE" ${ARGN})
  set(sources)
  foreach(directory IN LISTS ROOM_DIRECTORIES)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/*.cpp
         ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/*.h)
    if(ORRERY_HAS_CUDA)
      file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${directory}/*.cu)
      list(APPEND found ${kernels})
    endif()
    list(APPEND sources ${found})
  endforeach()
  if(NOT sources MATCHES "\\.cpp")
    add_library(orrery_${name} INTERFACE)
    target_link_libraries(orrery_${name} INTERFACE orrery_options ${ROOM_PUBLIC})
    return()
  endif()
  add_library(orrery_${name} STATIC ${sources})
  target_link_libraries(orrery_${name} PUBLIC orrery_options ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE})
endfunction()

# orrery_embed(target function files…): compiles data files into the target. Generates a source that defines
#   std::span<const orrery::EmbeddedFile> orrery::FUNCTION();   sorted by name, which is the file name without extension
function(orrery_embed target function)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${function} "-DFILES=${ARGN}" -P
            ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Embedding the data files of ${target}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

# orrery_compile_quickly(targets…): no optimisation, for test executables: their own code runs briefly but is slow to
# compile. The libraries under test keep their usual options.
function(orrery_compile_quickly)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endforeach()
endfunction()

# orrery_optimize(sources…): the exception, for test sources that compute for longer than they take to compile. After
# orrery_compile_quickly of their target.
function(orrery_optimize)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# Whether headers are parsed once for several sources (orrery_precompile, orrery_join). Other presets than release build
# each source by itself, so that a missing #include is an error there.
option(ORRERY_SHARE_HEADERS "Parse headers once for several sources" OFF)

# orrery_join(targets…): compiles the sources of each target together, up to a dozen at a time. Pays where headers define
# many functions in line (CLI11, googletest, nlohmann/json), which otherwise are compiled again for each source: the
# command's sources take a quarter of the time.
function(orrery_join)
  if(ORRERY_SHARE_HEADERS)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# orrery_precompile(target headers…): the headers are parsed once for all sources of a test executable, which saves half a
# second for each. Rooms do not gain: with optimisation the time goes elsewhere, and g++ 12 reports warnings from inside
# precompiled headers.
function(orrery_precompile target)
  set(few_sources 4)  # a target with fewer does not win back the time of the precompiled header itself
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(LENGTH sources count)
  if(NOT ORRERY_SHARE_HEADERS OR count LESS few_sources)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <gtest/gtest.h> <algorithm> <array> <functional> <map> <memory> <optional>
                                              <set> <string> <utility> <vector> ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # for ccache
  endif()
endfunction()

# orrery_test(name libraries…): one test executable from all sources in tests/unit/<name>.
function(orrery_test name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/unit/${name}/*.cpp)
  if(sources)
    add_executable(${name}_test ${sources})
    target_link_libraries(${name}_test PRIVATE orrery_options ${ARGN} GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    orrery_compile_quickly(${name}_test)
    orrery_precompile(${name}_test)
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
  endif()
endfunction()
