# Completion scripts and the manual pages of both programs. kv-compress prints its own;
# those of kv-compressd are made of what its --help says.
set(printed ${PROJECT_BINARY_DIR}/command_line)
install(CODE "
function(print_to file)
  execute_process(\${ARGN} OUTPUT_FILE \"${printed}/\${file}\" RESULTS_VARIABLE results)
  if(NOT results MATCHES \"^0(;0)*$\")
    message(FATAL_ERROR \"\${ARGN}: \${results}\")
  endif()
endfunction()
file(MAKE_DIRECTORY \"${printed}\")
set(ask_client COMMAND \"$<TARGET_FILE:kv-compress>\")
print_to(kv-compress \${ask_client} -completion bash)
print_to(_kv-compress \${ask_client} -completion zsh)
print_to(kv-compress.fish \${ask_client} -completion fish)
print_to(kv-compress.1 \${ask_client} -man)
set(ask_server COMMAND \"$<TARGET_FILE:kv-compressd>\" --help
               COMMAND \"${CMAKE_CURRENT_LIST_DIR}/server-pages\")
print_to(kv-compressd \${ask_server} bash ${PROJECT_VERSION})
print_to(_kv-compressd \${ask_server} zsh ${PROJECT_VERSION})
print_to(kv-compressd.fish \${ask_server} fish ${PROJECT_VERSION})
print_to(kv-compressd.8 \${ask_server} man ${PROJECT_VERSION})
" COMPONENT server)
install(FILES ${printed}/kv-compress ${printed}/kv-compressd
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions
        COMPONENT server)
install(FILES ${printed}/_kv-compress ${printed}/_kv-compressd
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/vendor-completions
        COMPONENT server)
install(FILES ${printed}/kv-compress.fish ${printed}/kv-compressd.fish
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d
        COMPONENT server)
install(FILES ${printed}/kv-compress.1
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT server)
install(FILES ${printed}/kv-compressd.8
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man8 COMPONENT server)
