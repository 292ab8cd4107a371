/* A shared library with a plug-in's file name that is none. */
int distrun_test_empty_plugin(void);
int distrun_test_empty_plugin(void) { return 0; }
