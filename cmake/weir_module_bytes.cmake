# Writes the file BINARY as an array of C into OUTPUT; run by the build, for weir_module.
file(READ ${BINARY} text HEX)
string(REGEX REPLACE "(................................)" "\\1\n" text "${text}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," text "${text}")
file(WRITE ${OUTPUT} "__attribute__((aligned(16))) const unsigned char weiri_module_${NAME}[] = {\n${text}\n};\n")
