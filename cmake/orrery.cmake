# Warnings, sanitizers and floating-point rules for all of our targets. Contraction is off everywhere, so that a
# simulated time or a kernel's result does not depend on whether the compiler emits a fused multiply-add. -Wno-restrict:
# -Wrestrict gives false positives on std::string concatenation in g++ 12.
add_library(orrery_options INTERFACE)
set(orrery_warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -Wno-missing-field-initializers -Wno-restrict)
target_compile_options(
  orrery_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${orrery_warnings};-ffp-contract=off;-fstack-protector-strong>"
                           "$<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda;--expt-relaxed-constexpr;--Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
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

if(ORRERY_SANITIZE_THREADS)
  # -Wno-tsan: g++ warns of fences, which the sanitizer does not see. Only headers of others have some.
  target_compile_options(orrery_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  target_link_options(orrery_options INTERFACE -fsanitize=thread)
endif()

# Whether headers are parsed once for several sources (orrery_join). Other presets than release build each source by
# itself, so that a missing #include is an error there.
option(ORRERY_SHARE_HEADERS "Parse headers once for several sources" OFF)

# orrery_join(targets…): compiles the sources of each target together, up to eight at a time, so that the headers are
# parsed, and the functions that they define in line compiled, once for all of them. Half of the time of most sources
# goes there. With more sources at a time two cores would wait for the last of them, and a change would compile more.
# The anonymous namespaces of joined sources are one: what two of them need belongs in a header, and different things
# have different names.
function(orrery_join)
  if(ORRERY_SHARE_HEADERS)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# orrery_room(core DIRECTORIES . PUBLIC deps… PRIVATE deps…): one static library of all sources in the given folders,
# which are compiled together (orrery_join) unless SEPARATE is given.
function(orrery_room name)
  cmake_parse_arguments(ROOM "SEPARATE" "" "DIRECTORIES;PUBLIC;PRIVATE" ${ARGN})
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
  if(NOT ROOM_SEPARATE)
    orrery_join(orrery_${name})
  endif()
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
  # Compiles at once, and each of them has the same names.
  set_source_files_properties(${output} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# orrery_compile_quickly(targets…): no optimisation, for test executables: their own code runs briefly but is slow to
# compile. The libraries under test keep their usual options.
function(orrery_compile_quickly)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endforeach()
endfunction()

# orrery_optimize_less(rooms…): for rooms that read and write text, where no command spends its time. Compiles a fifth
# faster.
function(orrery_optimize_less)
  foreach(room IN LISTS ARGN)
    target_compile_options(orrery_${room} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  endforeach()
endfunction()

# orrery_optimize(sources…): the exception, for test sources that compute for longer than they take to compile. After
# orrery_compile_quickly of their target. They are not joined with others.
function(orrery_optimize)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>")
endfunction()

# orrery_test(name libraries…): one test executable from all sources in tests/unit/<name>.
function(orrery_test name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/unit/${name}/*.cpp)
  if(sources)
    add_executable(${name}_test ${sources})
    target_link_libraries(${name}_test PRIVATE orrery_options ${ARGN} GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE ORRERY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    orrery_compile_quickly(${name}_test)
    orrery_join(${name}_test)
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
  endif()
endfunction()
