#!/usr/bin/env bash
# Try the unit under a systemd of its own, in the root and with the catalogue that deploy/try_image.py has made:
#
#     sudo python3 deploy/try_image.py --work WORK && sudo deploy/try_unit.sh WORK
#
# Adds Debian's systemd to a copy of the root, sets visterm up as docs/install.md says, boots in namespaces (no machine and
# no network but its own loopback), and prints: is the service healthy, what may it write, which limits hold, how it ends.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) work=$(realpath "$1")
root=$work/booted

rm -rf "$root" && cp --archive "$work/stage-image" "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
chroot "$root" bash -euc '
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update && apt-get -qq install --yes --no-install-recommends systemd dbus
  userdel visterm
  useradd --system --home-dir /var/lib/visterm --shell /usr/sbin/nologin visterm
  install -d -o visterm -g visterm -m 750 /var/lib/visterm
  install -d -o visterm -g visterm -m 700 /etc/visterm
  install -o visterm -g visterm -m 600 /dev/null /etc/visterm/token
  echo a-token-only-for-this-try >/etc/visterm/token
  echo "OPTIONS=/var/lib/visterm/catalogue --host 0.0.0.0 --token-file /etc/visterm/token" >/etc/visterm/serve.conf
' >"$work/systemd.log" 2>&1 || { cat "$work/systemd.log"; exit 1; }
cp --archive "$work/data/catalogue" "$root/var/lib/visterm/catalogue"
chroot "$root" chown --recursive visterm:visterm /var/lib/visterm
cp "$here/visterm@.service" "$root/etc/systemd/system/"
chroot "$root" systemctl --quiet enable visterm@serve

# shellcheck disable=SC2016  # words of the shell inside
unshare --mount --pid --net --ipc --uts --cgroup --fork bash -euc '
  ip link set lo up
  mount --make-rprivate / && mount --bind "$1" "$1"
  mount -t proc proc "$1/proc" && mount -t sysfs sysfs "$1/sys" && mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
  mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/run" && mount -t tmpfs tmpfs "$1/tmp"
  cd "$1" && mkdir -p old && pivot_root . old && umount --lazy /old
  exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target
' bash "$root" >"$work/boot.log" 2>&1 &
boot=$!
trap 'pkill -KILL -P "$boot" || true' EXIT
until first=$(pgrep -P "$boot" -x systemd); do kill -0 "$boot"; sleep 0.5; done
inside() { nsenter --target "$first" --mount --pid --net --cgroup --root --wd "$@"; }
ask() {  # a health check as in the Dockerfile
  inside /opt/visterm/bin/python -c "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/api/v1/health').read().decode())"
}

for _ in $(seq 300); do
  if ask 2>/dev/null; then break; fi
  sleep 1
done
inside systemctl --no-pager --lines 0 status visterm@serve
inside bash -c '
  main=$(systemctl show --property MainPID --value visterm@serve)
  grep -E "^(Uid|CapEff|NoNewPrivs|Seccomp):" "/proc/$main/status"
  for place in /etc /opt/visterm /home /srv /var/lib/visterm /var/cache/visterm /tmp; do
    nsenter --target "$main" --mount touch "$place/written" 2>/dev/null && echo "can write $place" || echo "cannot write $place"
  done
  systemctl stop visterm@serve
  systemctl show visterm@serve --property Result --property ExecMainStatus --property NRestarts
  systemd-analyze security --no-pager visterm@serve | tail -1
'
