"""What an answer may say next, guessed from the prompt. No model."""

from collections.abc import Sequence

from thinker_talks import small_tokenizer

from voice_app.models.local.decode import VocabularyTokens
from voice_app.models.local.draft import Drafts, Words

END = "<end>"
TALK = f"bot hi . {END} you where is a cat ? {END} bot The cat is here . {END} you"


class Text:
    """A vocabulary of whole words."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.known = Words(
            lambda token: self.words[token].lower(), frozenset(self.ids(END)), *self.ids("The ? is .")
        )

    def ids(self, text: str) -> list[int]:
        self.words += [word for word in text.split() if word not in self.words]
        return [self.words.index(word) for word in text.split()]

    def guessed(self, before: str, question: str, said: str, most: int = 2) -> str:
        first, asked = self.ids(before), self.ids(question)
        ids = [*first, *asked, *self.ids(f"{END} bot")]
        drafts = Drafts(ids, range(len(first), len(first) + len(asked)), self.known)
        return self.text(drafts.after(self.ids(said), most))

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(self.words[token] for token in ids)


def test_the_questions_words_follow_on_each_other() -> None:
    text = Text()
    question = "What is the capital of France ?"
    assert text.guessed("you", question, "The") == "capital of"
    assert text.guessed("you", question, "The capital of", most=1) == "France"
    assert text.guessed("you", question, "Some words") == ""


def test_a_question_after_the_something_is_answered_with_it() -> None:
    assert Text().guessed("you", "What is the capital of France ?", "", most=3) == "The capital of"
    assert Text().guessed("you", "What is the capital of France ?", "", most=1) == "The"
    assert Text().guessed("you", "What is a cat ?", "", most=3) == ""
    assert Text().guessed("you", "Where is the", "", most=3) == ""


def test_a_pair_counts_more_than_a_word_and_the_last_more_than_the_first() -> None:
    assert Text().guessed("you", "is a cat or a dog or a bird", "and a") == "bird"
    assert Text().guessed("you", "is a cat or the dog or a bird", "is a") == "cat or"
    assert Text().guessed("you", "a b c and a b d", "a b") == "d"


def test_where_the_question_ends_the_answer_says_what_is() -> None:
    text = Text()
    assert text.guessed("you", "What is the name of France ?", "The name of France") == "is the"
    assert text.guessed("you", "What is the name of France ?", "The name is France") == "."


def test_answers_before_are_followed_where_the_question_has_nothing() -> None:
    assert Text().guessed(TALK, "where is a dog ?", "The") == "cat"
    assert Text().guessed(TALK, "where is a cat ?", "Oh the cat") == "is a"
    assert Text().guessed(TALK, "how ?", "cat is") == "here"


def test_nothing_is_guessed_of_what_ends_the_answer() -> None:
    assert Text().guessed(TALK, "where ?", "is here .") == ""


def test_there_may_be_no_question() -> None:
    text = Text()
    ids = text.ids(TALK + " bot")
    assert text.text(Drafts(ids, (), text.known).after(text.ids("The"), 2)) == "cat"


def test_words_of_a_vocabulary() -> None:
    tokens = VocabularyTokens(small_tokenizer())
    words = Words.of(tokens, frozenset())
    (the,), (spaced,) = tokens.encode("the"), tokens.encode(" the")
    assert the != spaced
    assert words.form(the) == words.form(spaced) != words.form(words.mark)
    assert [tokens.token_bytes(token) for token in (words.begin, words.mark, words.verb, words.stop)] == [
        b"T",  # Of the word it is one token in the packaged brain's vocabulary, and two in this one.
        b"?",
        b" is",
        b".",
    ]
    specials = [token for token in range(400) if not tokens.token_bytes(token)]
    assert len({words.form(token) for token in specials}) == len(specials)
