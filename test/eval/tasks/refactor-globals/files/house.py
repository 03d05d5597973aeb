import thermostat

states = []
for t in (18, 20, 20.5, 21.5, 20, 18.5):
    states.append("on" if thermostat.reading(t) else "off")
print("house", *states, thermostat.hours(), max(thermostat.history()))
