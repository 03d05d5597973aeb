"""People sign up, change their address, and invite others."""

people = {}


def sign_up(name, address):
    if not name:
        raise ValueError("a name is needed")
    address = address.strip().lower()
    if address.count("@") != 1:
        raise ValueError("an address has one @")
    local, domain = address.split("@")
    if not local or "." not in domain:
        raise ValueError("this is no address")
    if domain.endswith(".invalid"):
        raise ValueError("nobody can be reached there")
    people[name] = address
    return address


def change(name, address):
    if name not in people:
        raise KeyError(name)
    address = address.strip().lower()
    if address.count("@") != 1:
        raise ValueError("an address has one @")
    local, domain = address.split("@")
    if not local or "." not in domain:
        raise ValueError("this is no address")
    if domain.endswith(".invalid"):
        raise ValueError("nobody can be reached there")
    old, people[name] = people[name], address
    return old


def invite(name, addresses):
    """Returns the addresses to write to, each once."""
    found = []
    for address in addresses:
        address = address.strip().lower()
        if address.count("@") != 1:
            raise ValueError("an address has one @")
        local, domain = address.split("@")
        if not local or "." not in domain:
            raise ValueError("this is no address")
        if domain.endswith(".invalid"):
            raise ValueError("nobody can be reached there")
        if address not in found and address != people.get(name):
            found.append(address)
    return found
