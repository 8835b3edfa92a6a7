/* The same by c-ares, which asks for both families at once. */
#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/select.h>
#include <time.h>

static int done;
static int status;
static char text[1 << 16];

static long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void answered(void *arg, int code, int timeouts, struct ares_addrinfo *found) {
  (void)arg, (void)timeouts;
  int at = 0;
  done = 1, status = code, text[0] = 0;
  for (struct ares_addrinfo_node *node = found ? found->nodes : NULL; node; node = node->ai_next) {
    char one[INET6_ADDRSTRLEN] = "";
    void *ip = node->ai_family == AF_INET
                   ? (void *)&((struct sockaddr_in *)node->ai_addr)->sin_addr
                   : (void *)&((struct sockaddr_in6 *)node->ai_addr)->sin6_addr;
    inet_ntop(node->ai_family, ip, one, sizeof one);
    at += snprintf(text + at, sizeof text - at, " %s", one);
  }
  if (found) ares_freeaddrinfo(found);
}

int main(int count, char **names) {
  ares_channel channel;
  if (ares_library_init(ARES_LIB_INIT_ALL) || ares_init(&channel)) return 1;
  for (int i = 1; i < count; i++) {
    struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    long begun = now_ms();
    done = 0;
    ares_getaddrinfo(channel, names[i], "80", &hints, answered, NULL);
    while (!done) {
      fd_set readers, writers;
      FD_ZERO(&readers);
      FD_ZERO(&writers);
      int most = ares_fds(channel, &readers, &writers);
      struct timeval wait, *due = ares_timeout(channel, NULL, &wait);
      select(most, &readers, &writers, NULL, due);
      ares_process(channel, &readers, &writers);
    }
    printf("%s %d %ld%s\n", names[i], status, now_ms() - begun, text);
  }
  return 0;
}
