/* A disk that forgets what was not synced, for whole programs: preloaded, it notes beside the real folder what a power
 * cut would leave of it. Contents become durable by fsync, fdatasync and syncfs of a file, names by fsync of their
 * folder. Nothing is written to the device, so that tests are quick: what the programs see is the operating system's.
 *
 *   CUT_ROOT   the folder that is watched
 *   CUT_NOTES  where is noted: contents/KEY is the durable content of a file, names/KEY the durable names of a folder,
 *              one a line as "d KEY name" or "f KEY name"; KEY is the inode and its birth, since inodes are used again
 *
 * Linux only. Thread-safe: every note is written under a name of its own and renamed, but for logs, which only grow.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KEY_BYTES = 64 };

/* The key of a path, or of a descriptor when the path is empty; 0 when there is none. */
int cut_key(int fd, const char *path, char *key) {
    struct statx found;
    if (statx(fd, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &found) != 0)
        return 0;
    snprintf(key, KEY_BYTES, "%llx-%llx-%x", (unsigned long long)found.stx_ino,
             (unsigned long long)found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
    return 1;
}

static void note_path(char *path, const char *kind, const char *key) {
    snprintf(path, PATH_MAX, "%s/%s/%s", getenv("CUT_NOTES"), kind, key);
}

static void fresh_path(char *path, const char *kind, const char *key) {
    snprintf(path, PATH_MAX, "%s/%s/.%s.%d.%ld", getenv("CUT_NOTES"), kind, key, getpid(), syscall(SYS_gettid));
}

static int copy(int from, off_t at, off_t end, int to) {
    while (at < end) {
        ssize_t moved = sendfile(to, from, &at, end - at);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved == 0;
    }
    return 1;
}

static void note_content(const char *path) {
    char key[KEY_BYTES], kept[PATH_MAX], fresh[PATH_MAX];
    struct stat now, before;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return;
    if (fstat(from, &now) == 0 && cut_key(from, "", key)) {
        const char *ending = strrchr(path, '.');
        note_path(kept, "contents", key);
        if (ending && strcmp(ending, ".log") == 0 && stat(kept, &before) == 0 && before.st_size <= now.st_size) {
            int to = open(kept, O_WRONLY | O_CLOEXEC);
            if (to >= 0) {
                lseek(to, before.st_size, SEEK_SET);
                copy(from, before.st_size, now.st_size, to);
                close(to);
            }
        } else {
            fresh_path(fresh, "contents", key);
            int to = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
            if (to >= 0) {
                copy(from, 0, now.st_size, to);
                close(to);
                rename(fresh, kept);
            }
        }
    }
    close(from);
}

static void note_names(const char *path) {
    char key[KEY_BYTES], below[KEY_BYTES], kept[PATH_MAX], fresh[PATH_MAX];
    DIR *folder = opendir(path);
    if (!folder)
        return;
    if (cut_key(dirfd(folder), "", key)) {
        note_path(kept, "names", key);
        fresh_path(fresh, "names", key);
        FILE *out = fopen(fresh, "we");
        struct dirent *entry;
        while (out && (entry = readdir(folder)))
            if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && cut_key(dirfd(folder), entry->d_name, below))
                fprintf(out, "%c %s %s\n", entry->d_type == DT_DIR ? 'd' : 'f', below, entry->d_name);
        if (out) {
            fclose(out);
            rename(fresh, kept);
        }
    }
    closedir(folder);
}

static int note(const char *path, const struct stat *found, int kind, struct FTW *place) {
    (void)found, (void)place;
    if (kind == FTW_D)
        note_names(path);
    else if (kind == FTW_F)
        note_content(path);
    return 0;
}

/* Make the current content durable. */
void cut_note_all(const char *root) { nftw(root, note, 64, FTW_PHYS); }

/* One at a time in a process: two syncs of one file must not mix. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static int synced(int fd) {
    char link[64], path[PATH_MAX];
    struct stat found;
    const char *root = getenv("CUT_ROOT");
    if (!root || fstat(fd, &found) != 0)
        return fstat(fd, &found);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    if (strncmp(path, root, strlen(root)) == 0) {
        pthread_mutex_lock(&turn);
        S_ISDIR(found.st_mode) ? note_names(path) : note_content(path);
        pthread_mutex_unlock(&turn);
    }
    return 0;
}

int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }

int syncfs(int fd) {
    struct stat found;
    const char *root = getenv("CUT_ROOT");
    if (fstat(fd, &found) != 0)
        return -1;
    if (root) {
        pthread_mutex_lock(&turn);
        cut_note_all(root);
        pthread_mutex_unlock(&turn);
    }
    return 0;
}
