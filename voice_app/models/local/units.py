"""Units of measure and how they are said."""

_SIMPLE = {
    "%": "percent", "‰": "per mille", "¢": "cent", "°": "degree", "°C": "degree celsius",
    "°F": "degree fahrenheit", "℃": "degree celsius", "℉": "degree fahrenheit", "km": "kilometer",
    "m": "meter", "dm": "decimeter", "cm": "centimeter", "mm": "millimeter", "µm": "micrometer",
    "μm": "micrometer", "nm": "nanometer", "mi": "mile", "yd": "yard", "ft": "foot", "kg": "kilogram",
    "g": "gram", "mg": "milligram", "µg": "microgram", "μg": "microgram", "lb": "pound", "lbs": "pound",
    "oz": "ounce", "l": "liter", "L": "liter", "dl": "deciliter", "cl": "centiliter", "ml": "milliliter",
    "mL": "milliliter", "gal": "gallon", "ha": "hectare", "h": "hour", "hr": "hour", "hrs": "hour",
    "min": "minute", "mins": "minute", "s": "second", "sec": "second", "secs": "second",
    "ms": "millisecond", "µs": "microsecond", "ns": "nanosecond", "Hz": "hertz", "kHz": "kilohertz",
    "MHz": "megahertz", "GHz": "gigahertz", "W": "watt", "kW": "kilowatt", "MW": "megawatt",
    "GW": "gigawatt", "kWh": "kilowatt hour", "MWh": "megawatt hour", "V": "volt", "mV": "millivolt",
    "kV": "kilovolt", "mA": "milliamp", "mAh": "milliamp hour", "J": "joule", "kJ": "kilojoule",
    "kcal": "kilocalorie", "cal": "calorie", "N": "newton", "Pa": "pascal", "hPa": "hectopascal",
    "kPa": "kilopascal", "dB": "decibel", "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte",
    "GB": "gigabyte", "TB": "terabyte", "PB": "petabyte", "KiB": "kibibyte", "MiB": "mebibyte",
    "GiB": "gibibyte", "kbit": "kilobit", "Mbit": "megabit", "Gbit": "gigabit", "px": "pixel",
    "tbsp": "tablespoon", "tsp": "teaspoon",
}  # fmt: skip
_WHOLE = {
    "mph": "mile per hour", "kph": "kilometer per hour", "kmh": "kilometer per hour",
    "mpg": "mile per gallon", "kbps": "kilobit per second", "Mbps": "megabit per second",
    "Gbps": "gigabit per second", "fps": "frame per second", "rpm": "revolution per minute",
    "bpm": "beat per minute", "ppm": "part per million", "sq ft": "square foot", "sq m": "square meter",
    "sq mi": "square mile", "sq km": "square kilometer", "fl oz": "fluid ounce",
    "psi": "pound per square inch",
}  # fmt: skip
_POWERS = {"²": "square", "^2": "square", "2": "square", "³": "cubic", "^3": "cubic", "3": "cubic"}
_LENGTHS = ("km", "m", "dm", "cm", "mm", "mi", "ft")


def _table() -> dict[str, str]:
    table = _SIMPLE | _WHOLE
    for unit in _LENGTHS:
        for power, word in _POWERS.items():
            table[unit + power] = f"{word} {_SIMPLE[unit]}"
    return table


UNITS = _table()
"""Written form → noun in the singular."""
