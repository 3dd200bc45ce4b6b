# fby_module(NAME SOURCES f.c... [DEPS target...]): one folder of the tree as a static library.
# Its headers are included by their path from the root: #include "ringbuf/spsc.h".
function(fby_module NAME)
  cmake_parse_arguments(M "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${NAME} STATIC ${M_SOURCES})
  target_include_directories(${NAME} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${NAME} PUBLIC ${M_DEPS})
endfunction()

# fby_test(NAME SOURCES f.c... [LIBS target...] [TIMEOUT s]): a test program. Its tests are written with
# tests/support/test.h: Criterion, or a small single-process stand-in where ThreadSanitizer forbids it.
function(fby_test NAME)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  add_executable(${NAME} ${T_SOURCES})
  target_link_libraries(${NAME} PRIVATE fby_test_support ${T_LIBS})
  add_test(NAME ${NAME} COMMAND ${NAME})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  math(EXPR T_TIMEOUT "${T_TIMEOUT} * ${FOREBAY_TIMEOUT_SCALE}")
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${T_TIMEOUT})
endfunction()

# fby_fuzz(NAME SOURCES f.c... [LIBS target...]): a libFuzzer target, built where FOREBAY_FUZZ is on;
# elsewhere nothing. The program takes a corpus folder: tests/fuzz/corpus/NAME.
function(fby_fuzz NAME)
  if(NOT FOREBAY_FUZZ)
    return()
  endif()
  cmake_parse_arguments(F "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${NAME} ${F_SOURCES})
  target_link_libraries(${NAME} PRIVATE ${F_LIBS})
  target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
  # scripts/fuzz builds this target, and runs every program that it finds in the folder.
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/targets)
  if(NOT TARGET fuzz_targets)
    add_custom_target(fuzz_targets)
  endif()
  add_dependencies(fuzz_targets ${NAME})
endfunction()
