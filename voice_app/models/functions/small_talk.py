"""What people say to every assistant, and honest answers: a small model would invent names and weather."""

import re

_THANKS = r"(?:many thanks|thanks|thank you|very much|so much|a lot|for (?:your|the) help|that is all)\s*"
_FAREWELL = (
    r"(?:bye|goodbye|good bye|see you(?: later| soon)?|good night|have a (?:nice|good) (?:day|evening))\s*"
)
_WHEN = r"(?: outside| today| tomorrow| tonight)*"
_PHRASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "I'm doing well, thank you! How are you?",
        (
            rf"how are you(?: doing| feeling)?{_WHEN}",
            r"how is it going",
            r"how do you do",
            r"are you (?:okay|well)",
        ),
    ),
    (
        "I'm your voice assistant. I have no name of my own.",
        (
            r"(?:what is |may i know )?your name",
            r"do you have a name",
            r"(?:who|what) are you(?: called)?",
            r"what should i call you",
            r"introduce yourself",
        ),
    ),
    (
        "I'm a computer program, not a person. But I like to help!",
        (r"are you (?:an? )?(?:robot|computer|machine|human(?: being)?|(?:real )?person|real|alive|ai|bot)",),
    ),
    (
        "You can ask me questions, sums, the time, or what your camera sees.",
        (
            r"what (?:can|do) you do",
            r"how can you help(?: me)?",
            r"what can i ask(?: you)?",
            r"what are you able to do",
        ),
    ),
    (
        "Goodbye! It was nice to talk to you.",
        (rf"(?:{_THANKS}|{_FAREWELL}|okay |ok |well |so )*{_FAREWELL}(?:{_THANKS})*",),
    ),
    ("You're welcome!", (rf"(?:okay |ok |great |cool |wow )*(?:{_THANKS})+",)),
    (
        "I can't check the weather, so I don't know.",
        (
            rf"(?:what is|how is|what will)(?: the)? weather(?: be)?(?: like)?{_WHEN}(?: in .+)?",
            rf"(?:will it|is it going to) (?:rain|snow|be (?:sunny|warm|cold|hot)){_WHEN}",
            rf"is it (?:raining|snowing|sunny|warm|cold|hot){_WHEN}",
            rf"do i need (?:an umbrella|a coat|a jacket){_WHEN}",
        ),
    ),
    (
        "I can't look up the news, so I don't know.",
        (rf"(?:what is|what are|read me|any)(?: in)?(?: the)?(?: latest)? (?:news|headlines){_WHEN}",),
    ),
    (
        "I can't do that yet, but you can ask me a question.",
        (
            r"(?:set|start) (?:an?|the|my) (?:timer|alarm|reminder).*",
            r"(?:wake me|remind me (?:to|about|of|in|at)) .+",
            r"(?:text|email|phone) .+",
            r"(?:turn|switch) (?:on|off) .+",
            r"play (?:some |a |the )?(?:music|song|radio).*",
        ),
    ),
    (
        "Why did the bicycle fall over? Because it was two tired!",
        (
            r"(?:(?:tell|say|give)(?: me)? )?(?:(?:a|another|one|any|good|funny|short) )*jokes?",
            r"make me laugh",
            r"(?:(?:say|tell me) )?something funny",
        ),
    ),
)
_FORMS = tuple((re.compile("|".join(forms)), answer) for answer, forms in _PHRASES)


def spoken_phrase(question: str) -> str | None:
    """The answer to a normalised phrase that every assistant hears; None for all else."""
    for form, answer in _FORMS:
        if form.fullmatch(question):
            return answer
    return None
