# `cmake --install build/release --prefix DIR` makes a folder that runs anywhere on the same distribution: the program,
# the shipped model beside it, and in lib/ the third-party shared libraries that it was linked with (none in the static
# build). The C library and the header go with it.
if(NOT TARGET bellhop)
  return()
endif()

set_target_properties(bellhop PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
install(TARGETS bellhop RUNTIME DESTINATION .)
install(FILES "${CMAKE_SOURCE_DIR}/models/tiny-moe-q4_0.gguf" DESTINATION models)
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" "${CMAKE_SOURCE_DIR}/NOTICE" "${CMAKE_SOURCE_DIR}/README.md" DESTINATION .)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/" DESTINATION include)
# What belongs to the C library stays the system's.
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${CMAKE_INSTALL_PREFIX}/bellhop" RESOLVED_DEPENDENCIES_VAR found
       PRE_EXCLUDE_REGEXES "^(libc|libm|libdl|librt|libpthread|libgcc_s|ld-linux.*)\\.so"
       POST_EXCLUDE_REGEXES "^${CMAKE_INSTALL_PREFIX}/")
  foreach(library IN LISTS found)
    file(INSTALL "${library}" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" FOLLOW_SYMLINK_CHAIN)
  endforeach()
]])
