/* Looks each name up as a program does that connects, by the C library. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <time.h>

static long now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int count, char **names) {
  for (int i = 1; i < count; i++) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    long begun = now_ms();
    int code = getaddrinfo(names[i], "80", &hints, &found);
    printf("%s %d %ld", names[i], code, now_ms() - begun);
    for (; found; found = found->ai_next) {
      char text[INET6_ADDRSTRLEN] = "";
      void *at = found->ai_family == AF_INET
                     ? (void *)&((struct sockaddr_in *)found->ai_addr)->sin_addr
                     : (void *)&((struct sockaddr_in6 *)found->ai_addr)->sin6_addr;
      printf(" %s", inet_ntop(found->ai_family, at, text, sizeof text));
    }
    printf("\n");
  }
  return 0;
}
