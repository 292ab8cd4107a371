/* A shared library that has a plug-in's file name but is not a plug-in. */
int distrun_test_empty_plugin(void);
int distrun_test_empty_plugin(void) { return 0; }
