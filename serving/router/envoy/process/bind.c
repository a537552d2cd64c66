// Lets Envoy listen on a socket of the gateway, which outlives Envoy.
//
// Envoy has no way to take over a bound socket. The dynamic loader puts this library before libc (LD_PRELOAD,
// ld.so(8)), so that Envoy binds through it. Where the loader does not, Envoy binds a socket of its own.

#define _GNU_SOURCE  // dup3, syscall
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VARIABLE "SLIPWAY_PUBLIC_SOCKET"  // the number of the descriptor

static int same_address(const struct sockaddr_storage* bound, const struct sockaddr* wanted, socklen_t size) {
  if (bound->ss_family != wanted->sa_family) return 0;
  if (wanted->sa_family == AF_INET && size >= sizeof(struct sockaddr_in)) {
    const struct sockaddr_in *left = (const void*)bound, *right = (const void*)wanted;
    return left->sin_port == right->sin_port && left->sin_addr.s_addr == right->sin_addr.s_addr;
  }
  if (wanted->sa_family == AF_INET6 && size >= sizeof(struct sockaddr_in6)) {
    const struct sockaddr_in6 *left = (const void*)bound, *right = (const void*)wanted;
    return left->sin6_port == right->sin6_port &&
           memcmp(&left->sin6_addr, &right->sin6_addr, sizeof(left->sin6_addr)) == 0;
  }
  return 0;
}

static int held = -1;  // the gateway's socket until Envoy has taken it over; Envoy's main thread binds

__attribute__((constructor)) static void find_held(void) {
  const char* number = getenv(VARIABLE);
  if (number) held = atoi(number);
}

// Makes `descriptor` the gateway's socket if that is bound to the address; returns whether it did.
static int take_over(int descriptor, const struct sockaddr* wanted, socklen_t size) {
  if (held < 0) return 0;
  struct sockaddr_storage bound;
  socklen_t bound_size = sizeof(bound);
  if (getsockname(held, (struct sockaddr*)&bound, &bound_size) != 0 || !same_address(&bound, wanted, size))
    return 0;
  int flags = fcntl(descriptor, F_GETFD);
  if (flags < 0 || dup3(held, descriptor, flags & FD_CLOEXEC ? O_CLOEXEC : 0) < 0) return 0;
  // Envoy closes its descriptor when it stops to listen; another one would listen on.
  close(held);
  held = -1;
  return 1;
}

__attribute__((visibility("default")))
int bind(int descriptor, const struct sockaddr* address, socklen_t size) {
  if (take_over(descriptor, address, size)) return 0;
  return (int)syscall(SYS_bind, descriptor, address, size);
}
