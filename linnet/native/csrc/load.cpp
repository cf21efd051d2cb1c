// Whether other programs want the cores too, and how threads wait for each other then.
//
// The OpenMP runtime lets a thread without work spin for milliseconds before it sleeps. On an idle machine that is
// right: the next region finds it awake. On a busy one it burns the time slices that its own team needs. libgomp spins
// a thousandth as long while it manages more threads than there are cores, so a thread that has opened a region of its
// own and sleeps ("parked") makes every other team of that libgomp, torch's too, wait by sleeping; without it they spin
// again.
//
// Busy is measured, not guessed: the time that threads of this process were ready to run and had no core (schedstat).
#include "load.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

#if defined(__linux__) && defined(_OPENMP)
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace load {

constexpr int64_t MS = 1000000, WINDOW = 50 * MS, STALE = 500 * MS;  // between two looks, at least and at most
constexpr int64_t SHORTEST = 500 * MS, LONGEST = 8000 * MS;          // calm for so long: spin again
constexpr double BUSY = 0.2, EACH = 0.025, MOST = 0.6;  // seconds that threads waited for a core, per second: in all,
                                                        // more for each thread, and at most
constexpr double NEWS = 0.2;                // what one look counts, and at most so much: a burst alone changes nothing
constexpr int COPIES = 4, TASKS = 512;      // of libgomp in a process; threads looked at

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 * MS + t.tv_nsec;
}

// Nanoseconds that the threads of this process have waited for a core since they began; -1: the system does not say.
int64_t waited() {
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return -1;
  DIR *tasks = fdopendir(folder);
  if (!tasks) return close(folder), -1;
  int64_t total = 0;
  int seen = 0, told = 0;
  while (const dirent *task = seen < TASKS ? readdir(tasks) : nullptr) {
    if (task->d_name[0] == '.') continue;
    char name[300], text[96];
    snprintf(name, sizeof name, "%s/schedstat", task->d_name);
    const int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
    ++seen;
    if (file < 0) continue;  // a thread that has ended meanwhile
    const ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    text[n > 0 ? n : 0] = 0;
    const char *second = strchr(text, ' ');
    if (second) total += strtoll(second, nullptr, 10), ++told;
  }
  closedir(tasks);
  return told ? total : -1;
}

// ---- parked threads -------------------------------------------------------------------------------------------------

struct Parked {
  void (*parallel)(void (*)(void *), void *, unsigned, unsigned);  // GOMP_parallel of one libgomp
  unsigned team;
  sem_t end;
  pthread_t thread;
};

Parked parked[COPIES];
int copies = 0;         // of them with a thread
int64_t parked_for = 0;  // teams of at least so many threads are held back

void nothing(void *) {}

void *sleep_in(void *of) {
  Parked *p = (Parked *)of;
  p->parallel(nothing, nullptr, p->team, 0);
  while (sem_wait(&p->end)) {
  }
  return nullptr;
}

struct Names {
  char path[COPIES][PATH_MAX];
  int count;
};

int add_name(dl_phdr_info *library, size_t, void *to) {
  Names *names = (Names *)to;
  const char *slash = strrchr(library->dlpi_name, '/');
  if (slash && !strncmp(slash, "/libgomp", 8) && names->count < COPIES)
    snprintf(names->path[names->count++], PATH_MAX, "%s", library->dlpi_name);
  return 0;
}

// A thread that never takes a signal meant for the program.
bool start(Parked *p) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  sem_init(&p->end, 0, 0);
  const bool ok = pthread_create(&p->thread, nullptr, sleep_in, p) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ok;
}

// Every libgomp that is loaded (torch may bring its own) gets more threads than cores: its teams of `threads` sleep.
void park(int64_t threads) {
  Names *names = (Names *)calloc(1, sizeof(Names));
  if (!names) return;
  dl_iterate_phdr(add_name, names);
  for (int i = 0; i < names->count; ++i) {
    void *library = dlopen(names->path[i], RTLD_LAZY | RTLD_NOLOAD);
    if (!library) continue;
    int (*cores)() = (int (*)())dlsym(library, "omp_get_num_procs");
    Parked *p = parked + copies;
    *(void **)&p->parallel = dlsym(library, "GOMP_parallel");
    if (!cores || !p->parallel) continue;
    const int64_t missing = cores() - threads + 2;  // a team of n adds n - 1 to the threads of the others
    p->team = (unsigned)(missing > 2 ? missing : 2);
    if (start(p)) ++copies;
  }
  parked_for = threads;
  free(names);
}

void unpark() {
  for (int i = 0; i < copies; ++i) {
    sem_post(&parked[i].end);
    pthread_join(parked[i].thread, nullptr);
  }
  copies = 0;
}

// ---- looking --------------------------------------------------------------------------------------------------------

int64_t next_look = 0;  // read without the lock
int busy = 0, judged = 0, held = -1;  // how threads wait now; as measured; as told
int looking = 0, watched = 0;
double average = 0;
int64_t last = 0, last_waited = 0, calm_since = 0, calm_at = 0, patience = SHORTEST;

void after_fork() {  // the child has only the thread that forked
  copies = 0, looking = 0, next_look = 0, last = 0;
  __atomic_store_n(&busy, 0, __ATOMIC_RELAXED);
}

bool lock() {
  if (__atomic_exchange_n(&looking, 1, __ATOMIC_ACQUIRE)) return false;
  if (!watched) watched = pthread_atfork(nullptr, nullptr, after_fork) == 0;
  return true;
}

void unlock() { __atomic_store_n(&looking, 0, __ATOMIC_RELEASE); }

void wait_by_sleeping(bool yes, int64_t threads) {
  if (yes == (busy != 0) && !(yes && threads < parked_for)) return;
  if (busy) unpark();
  if (yes) park(threads);
  __atomic_store_n(&busy, (int)yes, __ATOMIC_RELAXED);
}

// Busy after a moment, calm only after a while; after a relapse a longer while.
bool judge(double share, double limit, int64_t t) {
  average += NEWS * ((share < 1 ? share : 1) - average);
  if (!judged) {
    if (average < limit) return false;
    patience = t - calm_at > 4 * patience ? SHORTEST : patience * 2 < LONGEST ? patience * 2 : LONGEST;
    calm_since = 0;
    return true;
  }
  if (average > limit / 2) return calm_since = 0, true;
  if (!calm_since) calm_since = t;
  if (t - calm_since < patience) return true;
  calm_at = t;
  return false;
}

void look(int64_t threads) {
  const int64_t t = now(), all = held < 0 ? waited() : 0;
  const double limit = BUSY + EACH * (double)threads, share = (double)(all - last_waited) / (double)(t - last);
  if (held < 0 && all >= 0 && last && t - last < STALE) judged = judge(share, limit < MOST ? limit : MOST, t);
  last = t, last_waited = all;
  wait_by_sleeping(held < 0 ? judged : held, threads);
  __atomic_store_n(&next_look, all < 0 ? INT64_MAX : now() + WINDOW, __ATOMIC_RELAXED);
}

}  // namespace load

extern "C" void linnet_notice(int64_t threads) {
  if (threads < 2 || load::now() < __atomic_load_n(&load::next_look, __ATOMIC_RELAXED)) return;
  if (!load::lock()) return;  // another thread is looking
  load::look(threads);
  load::unlock();
}

EXPORT int linnet_busy(void) { return __atomic_load_n(&load::busy, __ATOMIC_RELAXED); }

EXPORT int linnet_hold(int64_t busy, int64_t threads) {
  while (!load::lock()) sched_yield();
  load::held = (int)busy, load::last = 0;
  load::wait_by_sleeping(busy < 0 ? load::judged : busy, threads);
  __atomic_store_n(&load::next_look, 0, __ATOMIC_RELAXED);
  load::unlock();
  return 1;
}

#else  // another runtime: as it is

extern "C" void linnet_notice(int64_t) {}
EXPORT int linnet_busy(void) { return 0; }
EXPORT int linnet_hold(int64_t, int64_t) { return 0; }
#endif
