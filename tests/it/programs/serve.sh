# Real servers in the router's network, as an ordinary user with an entry in
# /etc/passwd. Arguments: the world's uid, a folder to be made for them, one that
# a box is granted, then what to start. Says `ready` when all of it listens.
set -eu
uid=$1 folder=$2 given=$3
shift 3
if [ "$(id -u)" = 0 ]; then
  mkdir -p "$folder" "$given"
  cp /etc/passwd "$folder/passwd"
  sed -i "/:x:$uid:/d" "$folder/passwd"
  echo "worker:x:$uid:$uid::$folder:/bin/sh" >>"$folder/passwd"
  mount --bind "$folder/passwd" /etc/passwd
  exec unshare --user --map-user="$uid" --map-group="$uid" \
    bash -c "$SCRIPT" serve "$uid" "$folder" "$given" "$@"
fi
cd "$folder"
export HOME=$folder

listens() {
  until (exec 3<>"/dev/tcp/${2:-127.0.0.1}/$1") 2>/dev/null; do sleep 0.02; done
}

certificate() {
  [ -e cert.pem ] && return
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 \
    -subj "/CN=$NAME" \
    -addext "subjectAltName=DNS:$NAME" -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem 2>openssl.log
  cp cert.pem "$given/ca.pem"
}

repository() {
  [ -e repo.git ] && return
  git init -q --bare -b main repo.git
  git -C repo.git config http.receivepack true
  git clone -q repo.git first 2>/dev/null
  echo 'hello from a repository' >first/README
  head -c 200000 /dev/urandom >first/noise
  git -C first add .
  git -C first -c user.name=w -c user.email=w@w commit -qm first
  git -C first push -q origin HEAD:main
}

for what; do
  case $what in
  web)
    certificate
    repository
    python3 -c "$WEB" 8443 "$folder" "$NAME" &
    listens 8443
    ;;
  h2)
    certificate
    mkdir -p pages
    head -c 1000000 /dev/zero >pages/blob
    nghttpd -d pages 8444 key.pem cert.pem >/dev/null &
    listens 8444
    ;;
  quic)
    certificate
    openssl pkcs8 -topk8 -nocrypt -outform DER -in key.pem -out key.der
    openssl x509 -outform DER -in cert.pem -out cert.der
    cp cert.der "$QUIC" "$given"
    "$QUIC" serve '[::]:4433' cert.der key.der &
    ;;
  ssh)
    repository
    for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$folder/$key.key"; done
    cp user.key "$given/key"
    echo "[$NAME]:2222 $(cat host.key.pub)" >"$given/known_hosts"
    cat >"$given/config" <<END
Host $NAME
  User worker
  Port 2222
  IdentityFile $given/key
  UserKnownHostsFile $given/known_hosts
  BatchMode yes
END
    /usr/sbin/sshd -D -e -f /dev/null -p 2222 -h "$folder/host.key" \
      -o AuthorizedKeysFile="$folder/user.key.pub" -o StrictModes=no -o UsePAM=no \
      -o PasswordAuthentication=no -o PidFile=none 2>sshd.log &
    listens 2222
    ;;
  postgres)
    programs=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
    "$programs/initdb" -D pg -N -A trust -U worker --no-locale -E UTF8 --no-instructions >/dev/null
    echo 'host all all all trust' >>pg/pg_hba.conf
    "$programs/postgres" -D pg -F -c listen_addresses='*' -c unix_socket_directories= 2>pg.log &
    listens 5432
    # It listens a little before it answers.
    until "$programs/pg_isready" -q -h 127.0.0.1; do sleep 0.02; done
    ;;
  redis)
    redis-server --port 6379 --bind '* -::*' --protected-mode no --save '' >redis.log &
    listens 6379
    ;;
  # The one that builds this; it is served by `web`.
  cargo) ;;
  iperf)
    # Its datagrams come from the address that it is bound to, or from any.
    iperf3 -s -B "$ADDRESS" >/dev/null &
    listens 5201 "$ADDRESS"
    ;;
  esac
done
echo ready
wait
