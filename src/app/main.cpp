#include "app/verbs.h"

int main(int argc, char** argv) { return mantissa::run_command_line({argv + (argc > 0 ? 1 : 0), argv + argc}); }
