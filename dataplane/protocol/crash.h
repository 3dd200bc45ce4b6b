/* Crash points: where a test kills this process, in the middle of things.
 *
 * Only tests' own builds of server and client have them (tests/server, FBY_CRASH_POINTS); there
 * FOREBAY_CRASH_POINT=NAME:N raises SIGKILL when the point NAME is reached for the N-th time. Everywhere else
 * a point is nothing. Names are unique: tests/python/test_server_crash.py finds them in the sources and goes
 * through all of them. */
#ifndef FBY_DATAPLANE_PROTOCOL_CRASH_H
#define FBY_DATAPLANE_PROTOCOL_CRASH_H

#ifdef FBY_CRASH_POINTS
void fby_crash_point(const char *name); /* tests/server/crash.c */
#define FBY_CRASH_POINT(name) fby_crash_point(name)
#else
#define FBY_CRASH_POINT(name) ((void)0)
#endif

#endif
