# Writes OUT with the commit of SOURCE, and leaves the file alone when it is right already, so that nothing is rebuilt.
#   cmake -DSOURCE=... -DOUT=... -P write_commit.cmake
execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR commit STREQUAL "")
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT "${OUT}" CONTENT "#define BELLHOP_COMMIT \"${commit}\"\n")
