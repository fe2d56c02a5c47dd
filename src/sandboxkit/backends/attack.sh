# The shared attack: everything a box must not allow, tried once. Prints key=value
# lines; the host looks at what was printed and at what happened to its own files.
# POSIX sh and few processes. Nothing here changes or harms what it reaches: files of
# the system are opened for writing and not written.
#
# Arguments: directory outside the writable ones, port of a listener on the host's
# loopback, pid of a process of the host, the host's home, interpreter or "".
outside=$1 port=$2 pid=$3 home=$4 python=$5
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# fs.write: the first three leave a file the host finds; the others only open.
echo x 2>/dev/null >"$outside/written"
echo x 2>/dev/null >"$outside/../beside"
echo x 2>/dev/null >>"$outside/canary"
[ -e /etc/passwd ] && true 2>/dev/null >>/etc/passwd && echo opened=/etc/passwd
[ -e /proc/sys/kernel/core_pattern ] && true 2>/dev/null >>/proc/sys/kernel/core_pattern && echo opened=/proc/sys/kernel/core_pattern

# fs.read
read -r line 2>/dev/null <"$outside/canary" && echo "canary=$line"
for name in "$home"/* "$home"/.[!.]*; do
    [ -e "$name" ] && echo home=listed && break
done

# What is what: the host compares with its own numbers.
if [ -d /System/Library ]; then # macOS, whose stat(1) is another
    stat -L -f 'inode=%N %d:%i' /etc/passwd "$home" 2>/dev/null
else
    stat -L -c 'inode=%n %d:%i' /proc/self/ns/net /proc/self/ns/pid /etc/passwd "$home" 2>/dev/null
fi

# process.isolation, syscalls
read -r line 2>/dev/null <"/proc/$pid/stat" && echo "process=$line"
kill -0 "$pid" 2>/dev/null && echo signal=sent
while read -r key value rest; do
    case $key in Seccomp: | NoNewPrivs: | CapEff:) echo "status=$key$value" ;; esac
done 2>/dev/null </proc/self/status

# process.nested_userns
if command -v unshare >/dev/null 2>&1; then
    unshare -U true >/dev/null 2>&1 && echo nested=made || echo nested=refused
elif [ -x "$python" ]; then
    "$python" -I -S -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)' 2>/dev/null && echo nested=made || echo nested=refused
fi

# net.none
if command -v bash >/dev/null 2>&1; then
    said=$(LC_ALL=C bash --noprofile --norc -c 'exec 3<>"/dev/tcp/127.0.0.1/$0"' "$port" 2>&1) && said=connected
elif [ -x "$python" ]; then
    said=$("$python" -I -S -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)' "$port" 2>&1) && said=connected
fi
case ${said-} in
connected) echo connect=made ;;
*"ermission denied"* | *"not permitted"*) echo connect=forbidden ;;
*efused* | *nreachable*) echo connect=refused ;;
esac
while read -r device rest; do
    [ "$device" = Iface ] && echo routes=read || echo "route=$device"
done 2>/dev/null </proc/net/route
while read -r a b c d e f g h i device; do
    [ "$device" = lo ] || echo "route=$device"
done 2>/dev/null </proc/net/ipv6_route

# env: the names this process, and the first of the box, were started with
echo environ=begin
[ -d /System/Library ] && env
tr '\0' '\n' 2>/dev/null <"/proc/$$/environ"
tr '\0' '\n' 2>/dev/null </proc/1/environ
echo environ=end

# process.kill_tree: what holds the pipe open after the end is still alive. It waits for
# the host to close the gate, so it is gone with the attack even where nothing ends it.
# A box that shows a copy has no pipe to the host; there a second command looks.
if [ -p pipe ]; then
    exec 3>pipe
    echo started >&3
    stays=': >left; read -r line' from=gate
else
    stays='echo $$ >left; exec sleep 30' from=/dev/null
    stat -L -c 'pidns=%i' /proc/self/ns/pid 2>/dev/null
fi
if command -v setsid >/dev/null 2>&1; then
    setsid sh -c "$stays" <"$from" >/dev/null 2>&1 &
elif [ -x "$python" ]; then
    "$python" -I -S -c 'import os, sys; os.setsid(); os.execv("/bin/sh", ["sh", "-c", sys.argv[1]])' "$stays" <"$from" >/dev/null 2>&1 &
else
    sh -c "$stays" <"$from" >/dev/null 2>&1 &
fi
# Until it has left the group: what is ended before that proves nothing.
turns=0
while [ ! -e left ] && [ "$turns" -lt 300000 ]; do turns=$((turns + 1)); done
echo done=yes
