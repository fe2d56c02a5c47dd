# The attack on a box that may reach listed hosts. Prints key=value lines; the host looks at
# what was printed and at who connected to its own servers. Nothing here leaves loopback.
#
# Arguments: port of a server that is not listed, port of one that is.
unlisted=$1 listed=$2
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
command -v bash >/dev/null 2>&1 || {
    echo tool=missing
    echo done=yes
    exit
}
# macOS has no timeout; the box has a deadline.
command -v timeout >/dev/null 2>&1 || timeout() {
    shift
    "$@"
}
proxy=${http_proxy:-${HTTP_PROXY:-}}
proxy=${proxy#*://} proxy=${proxy%%/*}
# A proxy on the machine's own loopback wants a token.
shown=
case $proxy in
*@*) shown="Proxy-Authorization: Basic $(printf %s "${proxy%@*}" | base64 | tr -d '\n')\r\n" ;;
esac
proxy=${proxy##*@}

# $1 host and port to connect to, $2 what to say there; prints the first line of the answer.
ask() {
    LC_ALL=C timeout 5 bash --noprofile --norc -c '
        exec 3<>"/dev/tcp/${0%:*}/${0##*:}" || exit
        printf "$1" >&3
        IFS= read -r line <&3 && printf "%s" "$line"' "$1" "$2" 2>/dev/null | tr -d '\r'
}

# Past the proxy, then through it by every way of asking.
for port in "$unlisted" "$listed"; do
    LC_ALL=C timeout 5 bash --noprofile --norc -c 'exec 3<>"/dev/tcp/127.0.0.1/$0"' "$port" 2>/dev/null && echo direct=made
done
if [ -n "$proxy" ]; then
    echo "refused=$(ask "$proxy" "CONNECT 127.0.0.1:$unlisted HTTP/1.1\r\n${shown}Host: 127.0.0.1:$listed\r\n\r\n")"
    echo "refused=$(ask "$proxy" "GET http://127.0.0.1:$unlisted/ HTTP/1.1\r\n${shown}Host: 127.0.0.1:$listed\r\n\r\n")"
    echo "refused=$(ask "$proxy" "CONNECT localhost:$unlisted HTTP/1.1\r\n${shown}Host: x\r\n\r\n")"
    echo "let=$(ask "$proxy" "CONNECT 127.0.0.1:$listed HTTP/1.1\r\n${shown}Host: x\r\n\r\n")"
    [ -z "$shown" ] || echo "untold=$(ask "$proxy" "CONNECT 127.0.0.1:$listed HTTP/1.1\r\nHost: x\r\n\r\n")"
fi
while read -r device rest; do
    [ "$device" = Iface ] && echo routes=read || echo "route=$device"
done 2>/dev/null </proc/net/route
while read -r a b c d e f g h i device; do
    [ "$device" = lo ] || echo "route=$device"
done 2>/dev/null </proc/net/ipv6_route
echo done=yes
