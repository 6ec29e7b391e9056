# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spoof check: OpenFlow flows that let a pod send as itself only (ovs-fields(7), ovs-actions(7)).

Ethernet source, sender of ARP (RFC 826), target and link-layer options of neighbour discovery (RFC 4861), and IP source
must be the pod's; it may not advertise itself as a router. A pod without addresses is held to its MAC address alone.
What passes goes on as on any bridge without a controller: `NORMAL`.

What lies behind more VLAN headers than the switch looks at nobody could check, and who is behind a tag of VLAN 0 gets
what is inside of it out of a port for untagged frames as a frame of another VLAN. Both are dropped.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Iterator

from ..errors import DeadlineExceeded, OvsdbError, OvsdbUnavailable

COOKIE_MASK = 0xFFFFFFFF00000000
COOKIES = 0x706F646E << 32
"""All of ours begin so."""
_PROGRAM = "ovs-ofctl"
_FLOW = re.compile(r"cookie=(0x[0-9a-f]+).*?in_port=(\d+)")
_REFUSED = "OFPT_ERROR"
_ROUTER, _SOLICIT, _ADVERTISE = 134, 135, 136
_NO_MAC = "00:00:00:00:00:00"
_BEST, _GOOD, _REST, _ANY, _NONE = 20040, 20030, 20020, 20010, 20000


def cookie_of(port: str) -> int:
    """The cookie of a port's flows."""
    return COOKIES | int.from_bytes(hashlib.sha256(port.encode()).digest()[:4], "big")


def flows_of(port: str, ofport: int, mac: str, addresses: Iterable[str]) -> list[str]:
    """The flows for a port, as ovs-ofctl(8) takes them. `addresses` have prefix lengths."""
    hosts = [ipaddress.ip_interface(text).ip for text in addresses]
    lines = [
        *_hidden(),
        *_router(),
        *_arp(mac, [str(host) for host in hosts if host.version == 4], bool(hosts)),
        *_neighbour(mac, [str(host) for host in hosts if host.version == 6], bool(hosts)),
        *_ip([str(host) for host in hosts if host.version == 4], 4, bool(hosts)),
        *_ip([*(str(host) for host in hosts if host.version == 6), link_local(mac)], 6, bool(hosts)),
        f"priority={_ANY}", f"priority={_NONE}",
    ]  # fmt: skip
    done = []
    for line in dict.fromkeys(lines):  # an address that is given twice, or the link-local one, is one flow
        match, _space, action = line.partition(" ")
        priority = int(match.partition(",")[0].partition("=")[2])
        source = "" if priority == _NONE else f",dl_src={mac}"
        what = action or ("drop" if priority == _NONE else "NORMAL")
        done.append(f"add table=0,cookie={cookie_of(port):#x},in_port={ofport}{source},{match},actions={what}")
    return done


def link_local(mac: str) -> str:
    """The link-local address that follows from a MAC address (RFC 4291, appendix A)."""
    octets = bytearray.fromhex(mac.replace(":", ""))
    octets[0] ^= 2
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + bytes(octets[:3]) + b"\xff\xfe" + bytes(octets[3:])))


def install(bridge: str, port: str, lines: Iterable[str], seconds: float, kept_fd: int = -1) -> None:
    """Gives a port these flows and no others, in one step; until then `kept_fd` stays open, whoever else closes it.

    Raises OvsdbError, OvsdbUnavailable, DeadlineExceeded.
    """
    text = "\n".join([f"delete cookie={cookie_of(port):#x}/-1", *lines]) + "\n"
    _run(["--bundle", "add-flows", bridge, "-"], text, seconds, kept_fd)


def forget(bridge: str, cookie: int, seconds: float) -> None:
    """Takes the flows with this cookie away. Raises OvsdbError, OvsdbUnavailable, DeadlineExceeded."""
    _run(["del-flows", bridge, f"cookie={cookie:#x}/-1"], "", seconds)


def seen(bridge: str, seconds: float) -> dict[int, list[int]]:
    """The flows of ours that a bridge has: by cookie, the OpenFlow port of each of its flows.

    Raises OvsdbError, OvsdbUnavailable, DeadlineExceeded.
    """
    mask = f"cookie={COOKIES:#x}/{COOKIE_MASK:#x}"
    found: dict[int, list[int]] = {}
    for cookie, port in _FLOW.findall(_run(["--no-stats", "dump-flows", bridge, mask], "", seconds)):
        found.setdefault(int(cookie, 16), []).append(int(port))
    return found


def _hidden() -> Iterator[str]:
    """A frame with more tags than the switch looks at has the next one's EtherType (ovs-fields(7), `eth_type`)."""
    yield f"priority={_BEST},vlan_tci=0x1000/0x1fff drop"
    yield f"priority={_BEST},dl_type=0x8100 drop"
    yield f"priority={_BEST},dl_type=0x88a8 drop"


def _router() -> Iterator[str]:
    yield f"priority={_BEST},icmp6,icmp_type={_ROUTER} drop"


def _arp(mac: str, hosts: list[str], known: bool) -> Iterator[str]:
    """0.0.0.0 is the sender of a probe (RFC 5227, 2.1.1)."""
    if not known:
        yield f"priority={_GOOD},arp,arp_sha={mac}"
    for host in (*hosts, "0.0.0.0") if known else ():
        yield f"priority={_GOOD},arp,arp_sha={mac},arp_spa={host}"
    yield f"priority={_REST},arp drop"


def _neighbour(mac: str, hosts: list[str], known: bool) -> Iterator[str]:
    """The link-layer option may be absent, which reads as zero. `::` is who looks for duplicates (RFC 4862, 5.4.2)."""
    own = [*hosts, link_local(mac)] if known else []
    sources = [f",ipv6_src={host}" for host in own] or [""]
    targets = [f",nd_target={host}" for host in own] or [""]
    # Only with the code in a match does the kernel's flow tell by the addresses inside, also where it is to drop.
    solicit, advertise = (f"icmp6,icmp_type={kind},icmp_code=0" for kind in (_SOLICIT, _ADVERTISE))
    for hardware in (mac, _NO_MAC):
        for source in (*sources, ",ipv6_src=::") if known else sources:
            yield f"priority={_GOOD},{solicit},nd_sll={hardware}{source}"
        for source in sources:
            for target in targets:
                yield f"priority={_GOOD},{advertise},nd_tll={hardware}{source}{target}"
    for message in (solicit, advertise):
        yield f"priority={_REST + 6},{message} drop"
        yield f"priority={_REST + 5},{message.partition(',icmp_code')[0]} drop"


def _ip(hosts: list[str], family: int, known: bool) -> Iterator[str]:
    """`::` is who asks for multicast before it has an address (RFC 3810, 5.2.13)."""
    if not known:
        return
    kind, field = ("ip", "nw_src") if family == 4 else ("ipv6", "ipv6_src")
    for host in hosts:
        yield f"priority={_REST + 3},{kind},{field}={host}"
    if family == 6:
        yield f"priority={_REST + 3},icmp6,icmp_type=143,ipv6_src=::"
    yield f"priority={_REST},{kind} drop"


def _run(words: list[str], stdin: str, seconds: float, kept_fd: int = -1) -> str:
    """The client that every Open vSwitch brings along."""
    import subprocess  # a pod without a spoof check has no use for it

    command = [_PROGRAM, "-O", "OpenFlow14", f"--timeout={max(int(seconds + 0.5), 1)}", *words]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=seconds + 1, check=False,
            pass_fds=[kept_fd] if kept_fd >= 0 else [],
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded("ovs-vswitchd does not take flows", "systemctl status ovs-vswitchd") from error
    except OSError as error:
        raise OvsdbError(f"cannot run {_PROGRAM}: {error.strerror}", "it comes with Open vSwitch") from error
    if done.returncode != 0:
        said = done.stderr.strip()[:300]
        if _REFUSED in said:
            raise OvsdbError(f"ovs-vswitchd refused the flows: {said}")
        raise OvsdbUnavailable(f"ovs-vswitchd does not take flows: {said}", "systemctl status ovs-vswitchd")
    return done.stdout
