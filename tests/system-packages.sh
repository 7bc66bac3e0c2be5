#!/usr/bin/env bash
# What the tests need beside Python packages: installed where we may, else named in one line a package.
# The tests that need a missing one are skipped, or fail where CI=true.
set -u
declare -A need=(
  [redis-server]=redis-server
  [espeak-ng]=espeak-ng
  [ffmpeg]=ffmpeg
  [chromium]=chromium
  [firefox-esr]=firefox-esr
  [pulseaudio]=pulseaudio
  [npm]=npm
  [ip]=iproute2
  [libibverbs.so.1]=libibverbs1
  [librdmacm.so.1]=librdmacm1
  [libnuma.so.1]=libnuma1
  [/usr/share/asterisk/sounds]=asterisk-core-sounds-en-g722
)
libraries=$(/sbin/ldconfig -p 2>/dev/null)
missing=()
for what in "${!need[@]}"; do
  command -v "$what" >/dev/null 2>&1 || [ -d "$what" ] || [[ "$libraries" == *$'\t'"$what "* ]] \
    || missing+=("${need[$what]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "▸ installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null \
    || { echo "could not install ${missing[*]}"; [ "${CI:-}" = true ] && exit 1; }
else
  for package in "${missing[@]}"; do
    echo "some tests will be skipped; to run them: apt-get install $package"
  done
  [ "${CI:-}" = true ] && exit 1
fi
exit 0
