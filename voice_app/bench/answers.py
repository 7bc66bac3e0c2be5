"""Answers as an assistant gives them, for measuring the voice: written, and how a person reads them aloud
where that is not the same."""

ANSWERS: tuple[tuple[str, str | None], ...] = (
    ("Sure, I can help you with that.", None),
    ("Hello! It's nice to hear from you. What's on your mind today?", None),
    ("The capital of France is Paris, which lies on the river Seine.", None),
    ("Yes.", None),
    ("I don't know, but I can find out.", None),
    ("Take a slow, deep breath. You have prepared well, and you can do it.", None),
    ("Rivers wash tiny bits of salt out of the rocks and carry them into the sea.", None),
    ("Sorry, I didn't understand that. Could you say it again?", None),
    ("It's 10:30 in the morning.", "It's ten thirty in the morning."),
    ("Today is Sunday, November 29, 2026.", "Today is Sunday, November twenty ninth, twenty twenty six."),
    ("12 x 7 = 84.", "Twelve times seven equals eighty four."),
    (
        "The train leaves at 4:05 pm and arrives at 6:45 pm.",
        "The train leaves at four oh five PM and arrives at six forty five PM.",
    ),
    (
        "It costs $3.50, or about 3 euros.",
        "It costs three dollars and fifty cents, or about three euros.",
    ),
    (
        "About 71% of the Earth is covered with water.",
        "About seventy one percent of the earth is covered with water.",
    ),
    (
        "The speed limit is 50 km/h in town.",
        "The speed limit is fifty kilometers per hour in town.",
    ),
    (
        "It is -5 °C outside, so wear a warm coat.",
        "It is minus five degrees celsius outside, so wear a warm coat.",
    ),
    ("Dr. Smith will see you on Mon. at 9 a.m.", "Doctor Smith will see you on Monday at nine AM."),
    ("World War II ended in 1945.", "World War Two ended in nineteen forty five."),
    ("She finished in 1st place and he came 3rd.", "She finished in first place and he came third."),
    ("**Remember:** drink *enough* water. 😀", "Remember, drink enough water."),
    (
        "1. Boil the water.\n2. Add the pasta.\n3. Wait for 8 to 10 minutes.",
        "One, boil the water. Two, add the pasta. Three, wait for eight to ten minutes.",
    ),
    ("Put the stems in a glass of water and keep it out of the cold.", None),
    ("You are holding an acoustic guitar.", None),
    ("The sign says bakery.", None),
    ("NASA was founded in 1958.", "Nasa was founded in nineteen fifty eight."),
    (
        "Mount Everest is 8,849 meters high.",
        "Mount Everest is eight thousand eight hundred forty nine meters high.",
    ),
    (
        "Light takes about 8 minutes to reach us from the sun.",
        "Light takes about eight minutes to reach us from the sun.",
    ),
    ("You could read a book, go for a walk, or call an old friend.", None),
    ("Bread, milk, eggs, and butter are on your list.", None),
    (
        "Use 1/2 cup of sugar and 3/4 cup of flour.",
        "Use half a cup of sugar and three quarters cup of flour.",
    ),
    ("Her number is 555-0142.", "Her number is five five five, zero one four two."),
    (
        "The population grew from 2.5 million to 3.1 million.",
        "The population grew from two point five million to three point one million.",
    ),
    ("Bats, e.g. fruit bats, sleep during the day.", "Bats, for example fruit bats, sleep during the day."),
    (
        "A leap year has 366 days, i.e. one more than usual.",
        "A leap year has three hundred sixty six days, that is one more than usual.",
    ),
    ("Photosynthesis turns sunlight, water and carbon dioxide into sugar and oxygen.", None),
    (
        "When the weather is warm and the days are long the children like to play outside until the sun goes "
        "down and their parents call them in for dinner",
        None,
    ),
    ("I'd love to! Which one should we start with, the first or the second?", None),
    (
        "No, that isn't quite right. There are 8 planets, not 9.",
        "No, that isn't quite right. There are eight planets, not nine.",
    ),
    (
        "Your meeting with Mr. Jones is on Nov 3 at 2:15.",
        "Your meeting with Mister Jones is on November third at two fifteen.",
    ),
    ("Good night, sleep well, and see you tomorrow.", None),
)
