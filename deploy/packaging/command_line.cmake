# Completion scripts and the manual page of kv-compress, which it prints itself.
set(printed ${PROJECT_BINARY_DIR}/command_line)
install(CODE "
function(print_to file)
  execute_process(COMMAND \"$<TARGET_FILE:kv-compress>\" \${ARGN}
                  OUTPUT_FILE \"${printed}/\${file}\" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR \"kv-compress \${ARGN}: \${failed}\")
  endif()
endfunction()
file(MAKE_DIRECTORY \"${printed}\")
print_to(kv-compress -completion bash)
print_to(_kv-compress -completion zsh)
print_to(kv-compress.fish -completion fish)
print_to(kv-compress.1 -man)
" COMPONENT server)
install(FILES ${printed}/kv-compress
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions
        COMPONENT server)
install(FILES ${printed}/_kv-compress
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions
        COMPONENT server)
install(FILES ${printed}/kv-compress.fish
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d
        COMPONENT server)
install(FILES ${printed}/kv-compress.1
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT server)
