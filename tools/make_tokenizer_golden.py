#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/*.json: small vocabularies with strings and the tokens that the Hugging Face
`tokenizers` package (byte-level BPE, one file per pre-tokenizer) and `sentencepiece` (spm.json) give for them.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 sentencepiece==0.2.3
    venv/bin/python tools/make_tokenizer_golden.py

The regexes are written in the original (Oniguruma) form; the C++ side has them in PCRE2 form. Whitespace is Unicode
White_Space in both: U+0085, U+00A0, U+1680, U+2028, U+3000 are in, U+180E, U+200B, U+FEFF and U+001C to U+001F are not.
"""

import argparse
import io
import json
import os
import random

import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD, TAIL = r"[^\r\n\p{L}\p{N}]?", r"\s*[\r\n]+|\s+(?!\S)|\s+"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

# Cased letters of the deepseek-llm regex, as code-point ranges.
DEEPSEEK_LETTERS = """
0041-005A 0061-007A 00B5 00C0-00D6 00D8-00F6 00F8-01BA 01BC-01BF 01C4-0293 0295-02AF 0370-0373 0376 0377 037B-037D 037F
0386 0388-038A 038C 038E-03A1 03A3-03F5 03F7-0481 048A-052F 0531-0556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF
1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4
1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D
2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3
A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F
104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943
"""


def char_class(ranges):
    out = ""
    for item in ranges.split():
        first, _, last = item.partition("-")
        out += f"\\x{{{first}}}" + (f"-\\x{{{last}}}" if last else "")
    return "[" + out + "]"


FAMILIES = {
    "llama-bpe": [CONTRACTIONS + "|" + LEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "qwen2": [CONTRACTIONS + "|" + LEAD + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL],
    "qwen35": [CONTRACTIONS + "|" + LEAD + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL],
    "gpt-4o": [LEAD + UPPER + "*" + LOWER + "+" + SUFFIX + "|" + LEAD + UPPER + "+" + LOWER + "*" + SUFFIX +
               r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL],
    "tekken": [LEAD + UPPER + "*" + LOWER + "+|" + LEAD + UPPER + "+" + LOWER + "*" +
               r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL],
    "gpt-2": [GPT2],
    "refact": [r"\p{N}", GPT2],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL],
    "deepseek-llm": [
        r"[\r\n]",
        r"\s?" + char_class(DEEPSEEK_LETTERS) + "+",
        r"\s?" + char_class("0021-002F 003A-007E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002") + "+",
        r"\s+$",
        char_class("4E00-9FA5 0800-4E00 AC00-D7FF") + "+",
        r"\p{N}"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
}
IGNORES_MERGES = {"llama-bpe", "tekken"}
VOCABULARY_SIZE = 720
# Tokens without a merge that makes them: reachable only when whole pieces are looked up first.
UNREACHABLE = [" helicopter", "helicopter", "\u6771\u4eac", " \u041c\u043e\u0441\u043a\u0432\u0430", "777", "\n\n\t"]

TRAINING = """\
The river runs past the old mill, and nobody remembers who built it. It's said that they'd come back; we'll see.
I've counted 12 boats, 345 birds and 6789 stones. She doesn't know what he'll do, and I'm not sure you're right.
DON'T SHOUT! WE'RE LISTENING. IT'S 2024, and version 3.14159 isn't 2.71828. Prices: $19.99, €20, £7 (50% off).
def mean(values):\n    total = 0\n    for v in values:\n        total += v\n    return total / len(values)\n
for (int i = 0; i < count; ++i) {\n\tsum += table[i] * weights[i];\n\tif (sum > limit) break;\n}\n
{"name": "value", "list": [1, 2, 3], "nested": {"key": null, "flag": true}} <html><body class="x">text</body></html>
Die Brücke über den Fluß ist schön, und die Mühle steht noch immer dort. Größere Städte gibt es im Süden.
La rivière coule près du vieux moulin; personne ne sait où elle finit. C'est l'été, n'est-ce pas? Ça va très bien.
El niño comió una manzana mañana por la mañana. ¿Dónde está la biblioteca? ¡Qué sorpresa!
Река течёт мимо старой мельницы, и никто не помнит, кто её построил. Москва большой город.
Το ποτάμι περνά δίπλα από τον παλιό μύλο και κανείς δεν θυμάται ποιος τον έχτισε.
川は古い水車小屋のそばを流れていて、誰が建てたのか誰も覚えていません。東京は大きな都市です。カタカナもあります。
河水流过老磨坊，没有人记得是谁建造的。北京是一个很大的城市。今天天气很好，我们去公园吧。
강은 오래된 방앗간 옆을 흐르고 누가 지었는지 아무도 기억하지 못한다. 서울은 큰 도시입니다.
يجري النهر بجانب الطاحونة القديمة ولا أحد يتذكر من بناها. العدد ١٢٣٤٥ كبير جدا.
נהר זורם ליד הטחנה הישנה, ואיש אינו זוכר מי בנה אותה. שָׁלוֹם עֲלֵיכֶם
नदी पुरानी चक्की के पास से बहती है और किसी को याद नहीं कि इसे किसने बनाया। संख्या १२३४५ है।
แม่น้ำไหลผ่านโรงสีเก่า และไม่มีใครจำได้ว่าใครเป็นคนสร้าง ราคา ๑๒๓ บาท
Dòng sông chảy qua cối xay cũ và không ai nhớ ai đã xây nó. Tiếng Việt có nhiều dấu.
Nehir eski değirmenin yanından akar. İstanbul'da yaşıyorum, ışık çok güzel.
😀 😃 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 ✨ → ← ∑ ∞ ≠ ≤ ½ ² ³ № ™ © Ⅷ ① ㊗
"""

ALPHABETS = [
    ("abcdefghijklmnopqrstuvwxyz", 8), ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 4), ("0123456789", 4), (" ", 10), ("\n\r\t", 4),
    ("'’`\"", 4), (".,;:!?-_/\\|()[]{}<>=+*&^%$#@~", 5), ("\u00a0\u3000\u0085\u2028\u2029\u1680\u2003\u202f\u205f", 3),
    ("\u180e\u200b\u200c\u200d\ufeff\u2060\x00\x0b\x0c\x1c\x1d\x1e\x1f\x7f\u0080", 3),
    ("áàâäãåçéèêëíñóöøúüýßæœÀÉÖÜÇÑŁłĐđǅǈ", 3), ("\u0301\u0308\u0327\u20e3\ufe0f\u094d\u0303", 3),
    ("абвгдежзийклмнопАБВГДЕ", 2), ("αβγδεζηθΑΒΓΔᾼώ", 2), ("日本語東京漢字中文的是一", 3), ("ひらがなカタカナーゝ", 2),
    ("가나다라한국어", 2), ("ابتثجحخ١٢٣", 2), ("नमस्ते१२३क्ष", 2), ("ไทยแม่น้ำ๑๒๓", 1), ("אבגדשׁ", 1),
    ("½²³Ⅷ①㊗௧𝟘𝟙", 2), ("😀👍🏽🇫🇷🏳🌈👨👩👧✨→∑∞€£", 3), ("ſKÅDžǆªºʰˑ", 2), ("𐐀𐐨𝒜𝕏𠀀𪚥", 1),
]


def fixed_texts():
    spaces = ["\u0085", "\u00a0", "\u1680", "\u180e", "\u2000", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f",
              "\u3000", "\ufeff", "\x1c", "\x1d", "\x1e", "\x1f", "\x0b", "\x0c", "\t", "\r", "\n", "\x00", "\x7f"]
    out = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", " \n", "\n ", "  \n  x", "a  b", "a   b", "a\n\n\nb", "a \n b",
           "\t\tx", " \t x", "x ", "x  ", "x\n", "x \n", "   \r\n\t\r\n   y"]
    out += [c for c in spaces] + ["a" + c + "b" for c in spaces] + ["a" + c + c + "b " + c + " 1" + c for c in spaces]
    out += ["it's IT'S we'RE I'll I'LL you've YOU'D don't 'tis 's 't rock'n'roll o'clock's''s '",
            "a's'b 'S'T x'M 'ſ 'K’s it’s", "Hello, world! 123 4567 89012 3.14 1,000,000 0x1F", "\u0661\u0662\u0663\u0664 १२३४५ ๑๒๓ ½²³ Ⅷ①",
            "camelCaseWord HTTPServer XMLHttpRequest iPhone McDonald ABCdef abcDEF ÀÉÎabc éÀ ǅabc", "snake_case_word kebab-case a.b.c",
            "https://example.org/path?q=1&r=2#top", "user@example.com <tag attr='v'>text</tag>", "!!! ... ??? --- ___ ###\n\n## T\n",
            "a/b//c\n/d\r\n/", "!\n!\r\n!!\n\n", "$x+$y=<z>^2~|w|", "(a)[b]{c}\"d\"", "e\u0301le\u0300ve na\u0308ive \u0301x \u0301\u0301",
            "👨‍👩‍👧‍👦 👍🏽👍🏻 🏳️‍🌈 🇫🇷🇩🇪 1️⃣", "東京タワーへ行く。今日は3月14日です", "我有2个苹果，abc和123。「引用」", "서울 2024년 abc한국어",
            "مرحبا بالعالم ١٢٣ abc", "नमस्ते दुनिया क्षत्रिय", "สวัสดีชาวโลก ๑๒๓", "שָׁלוֹם עולם", "İstanbul ışık ŞĞ", "ﬁnance ﬂow ﬀ",
            " helicopter helicopter 777 7777 東京 Москва\n\n\tx", "\n\n\t", "東京", "Ω K Å ᾼ ώ ι ΐ Ί \u1f7d \u1fbe \u1fd3 \u1fdb \u2126 \u212a",
            "！＂＃（）：～　。、‘’“”ＡＢｃ１２", "\ud7ff\uac00\u0800\u4e00\u9fa5\u9fa6㐀", "𝒜𝕏𝟘𝟙 𐐀𐐨 𠀀𪚥", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "the the the river river mill nobody remembers" * 3, "ªº ʰˑ ˈ ₀ ₁ ⁰"]
    out += [line for line in TRAINING.split("\n") if line][:12]
    return out


def random_texts(rng, count):
    names, weights = [a for a, _ in ALPHABETS], [w for _, w in ALPHABETS]
    out = []
    for _ in range(count):
        text = ""
        for alphabet in rng.choices(names, weights, k=rng.randint(2, 9)):
            text += "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 4)))
        out.append(text)
    return out


def byte_alphabet():
    visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    table, spare = {b: chr(b) for b in visible}, 256
    for b in range(256):
        if b not in table:
            table[b], spare = chr(spare), spare + 1
    return table


def train_bpe(name, regexes):
    """A tokenizer trained on TRAINING, with UNREACHABLE added to its vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(r), "isolated") for r in regexes]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TRAINING], trainer)
    state = json.loads(tokenizer.to_str())
    vocabulary, table = state["model"]["vocab"], byte_alphabet()
    for text in UNREACHABLE:
        mapped = "".join(table[b] for b in text.encode())
        if mapped not in vocabulary:
            vocabulary[mapped] = len(vocabulary)
    state["model"]["ignore_merges"] = name in IGNORES_MERGES
    return Tokenizer.from_str(json.dumps(state)), state["model"]


def bpe_golden(name, regexes, texts):
    tokenizer, model = train_bpe(name, regexes)
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    cases = []
    for text in texts:
        pieces = [len(piece) for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        if sum(pieces) != len(text.encode()):
            raise SystemExit(f"{name}: pieces do not cover {text!r}")
        cases.append({"text": text, "pieces": pieces, "ids": tokenizer.encode(text, add_special_tokens=False).ids})
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return {"model": "gpt2", "pre": name, "tokens": tokens, "merges": merges}, cases


def spm_golden(texts):
    stored = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING.split("\n") * 3), model_writer=stored, model_type="bpe", vocab_size=700,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", add_dummy_prefix=True,
        remove_extra_whitespaces=False, split_digits=True, minloglevel=2, allow_whitespace_only_pieces=True)
    sp = sentencepiece.SentencePieceProcessor(model_proto=stored.getvalue())
    ids = range(sp.get_piece_size())
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in ids]
    header = {"model": "llama", "pre": "default", "tokens": [sp.id_to_piece(i) for i in ids],
              "scores": [round(sp.get_score(i), 6) for i in ids], "types": kinds}
    cases = []
    for text in texts:
        if "\u2581" in text:
            continue  # written as a space
        encoded = sp.encode(text)
        if sp.decode(encoded) != text:
            raise SystemExit(f"spm: {text!r} does not round-trip")
        cases.append({"text": text, "ids": encoded})
    return header, cases


def write(path, header, cases):
    with open(path, "w", encoding="ascii") as f:
        f.write("{\n")
        for key, value in header.items():
            f.write(f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))},\n")
        f.write(' "cases": [\n  ' + ",\n  ".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n ]\n}\n")
    print(f"{path}: {len(header['tokens'])} tokens, {len(cases)} cases, {os.path.getsize(path)} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--out", default=os.path.join(root, "tests", "golden", "tokenizer"))
    parser.add_argument("--random", type=int, default=150, help="random strings per file")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    for seed, (name, regexes) in enumerate(FAMILIES.items()):
        texts = fixed_texts() + random_texts(random.Random(seed), arguments.random)
        write(os.path.join(arguments.out, name + ".json"), *bpe_golden(name, regexes, texts))
    texts = fixed_texts() + random_texts(random.Random(99), arguments.random)
    write(os.path.join(arguments.out, "spm.json"), *spm_golden(texts))


if __name__ == "__main__":
    main()
