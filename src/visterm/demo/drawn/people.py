"""Tags as people give them: each person has a language and habits, forgets much, mistypes some, and errs at times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from random import Random

from visterm.core.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSettings:
    """How far people's tags are from the true ones; every field but `people` is a chance between 0 and 1."""

    people: int = 60  # How many people share the library; a few of them took most of the photos
    # Chance that a person tags in German or French instead of English
    german: float = 0.12
    french: float = 0.08
    terse: float = 0.25  # Chance that a person gives only one to three tags a photo
    forget: float = 0.25  # Chance that a person who is not terse leaves a tag out
    # Chance that a tag is written with another word, in the plural, or wrongly
    synonym: float = 0.12
    plural: float = 0.1
    misspell: float = 0.04
    capital: float = 0.15  # Chance that a person writes tags with a capital, and half of that in capitals only
    wrong: float = 0.08  # Chance that a photo has one tag that is not true

    def __post_init__(self) -> None:
        if self.people < 1:
            raise UserError(f"people is {self.people!r}; expected 1 or more.")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "people" and not 0 <= value <= 1:
                raise UserError(f"{field.name} is {value!r}; expected a chance from 0 to 1.")
        if self.german + self.french > 1:
            raise UserError(f"german + french is {self.german + self.french}; expected at most 1.")


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who tags photos: a language ("en", "de", "fr"), brief or not, and a way with capitals."""

    number: int
    language: str
    terse: bool
    case: str

    def write(self, tags: Sequence[str], rng: Random, noise: NoiseSettings, all_tags: Sequence[str]) -> tuple[str, ...]:
        """Return the tags that this person puts on a photo of which `tags` are true; never none where any is true."""
        kept = [tag for tag in tags if rng.random() >= noise.forget] or list(tags[:1])
        if self.terse:
            kept = rng.sample(list(tags), min(len(tags), rng.randint(1, 3)))
        rng.shuffle(kept)
        if kept and rng.random() < noise.wrong:
            kept.append(rng.choice([tag for tag in all_tags if tag not in tags]))
        return tuple(dict.fromkeys(self._spell(tag, rng, noise) for tag in kept))

    def _spell(self, tag: str, rng: Random, noise: NoiseSettings) -> str:
        spellings = SPELLINGS[tag]
        word, draw = tag, rng.random()
        if self.language == "de" and spellings.german:
            word = spellings.german
        elif self.language == "fr" and spellings.french:
            word = spellings.french
        elif draw < noise.misspell and spellings.misspellings:
            word = rng.choice(spellings.misspellings)
        elif noise.misspell <= draw < noise.misspell + noise.synonym and spellings.synonyms:
            word = rng.choice(spellings.synonyms)
        elif rng.random() < noise.plural and spellings.plural:
            word = spellings.plural
        if self.case == "capital":
            return word[0].upper() + word[1:]
        return word.upper() if self.case == "upper" and "ß" not in word else word


def person_behind(rng: Random, seed: int, noise: NoiseSettings) -> Person:
    """Return the person who took a photo: number `n` is drawn about ``1 / (n + 2)`` as often as the others."""
    number = rng.choices(range(noise.people), [1 / (n + 2) for n in range(noise.people)])[0]
    habits = Random(seed * 1_000_003 + number)
    language = habits.choices(("de", "fr", "en"), (noise.german, noise.french, 1 - noise.german - noise.french))[0]
    terse = habits.random() < noise.terse
    case = "plain"
    if habits.random() < noise.capital:
        case = habits.choice(("capital", "upper"))
    return Person(number, language, terse, case)


_TABLE = """
aeroplane | aeroplanes | airplane; plane | areoplane | Flugzeug | avion
animal | animals | beast | animel | Tier | animal
antenna | antennas | aerial | antena | Antenne | antenne
antlers | | | antlars | Geweih | bois de cerf
arm | arms | | | Arm | bras
autumn | | fall | autum | Herbst | automne
balloon | balloons | hot-air balloon | baloon | Ballon | montgolfière
barn | barns | | barne | Scheune | grange
basket | baskets | | baskett | Korb | panier
beach | beaches | seaside; shore | beech | Strand | plage
beak | beaks | bill | | Schnabel | bec
bicycle | bicycles | bike | bycicle | Fahrrad | vélo
birch | birches | | brich | Birke | bouleau
bird | birds | | brid | Vogel | oiseau
blade | blades | | | Mühlenflügel | pale
blue | | | bleu ciel; blu | blau | bleu
boat | boats | | baot | Boot | bateau
branch | branches | twig | brance | Ast | branche
bridge | bridges | | brigde | Brücke | pont
building | buildings | | bulding | Gebäude | bâtiment
bus | buses | coach | buss | Omnibus | autobus
butterfly | butterflies | | buterfly | Schmetterling | papillon
cabin | cabins | | cabbin | Kabine | cabine
cactus | cacti | | cactuss | Kaktus | cactus
camel | camels | | cammel | Kamel | chameau
cap | caps | | | Pilzhut | chapeau de champignon
car | cars | automobile; auto | carr | Pkw | voiture
castle | castles | fortress | casle | Burg | château
cat | cats | kitty | catt | Katze | chat
chimney | chimneys | | chimny | Schornstein | cheminée
church | churches | chapel | chruch | Kirche | église
clock | clocks | | clok | Uhr | horloge
cloud | clouds | | clowd | Wolke | nuage
cow | cows | cattle | | Kuh | vache
cross | crosses | | | Kreuz | croix
daisy | daisies | | daisey | Gänseblümchen | pâquerette
deer | | | dear | Hirsch | cerf
desert | deserts | | dessert | Wüste | désert
dog | dogs | doggy | dogg | Hund | chien
door | doors | | dooor | Tür | porte
duck | ducks | | duk | Ente | canard
ear | ears | | | Ohr | oreille
elephant | elephants | | elefant; elephent | Elefant | éléphant
field | fields | | feild | Feld | champ
fin | fins | | | Flosse | nageoire
fish | fishes | | fisch | Fisch | poisson
flag | flags | | flagg | Flagge | drapeau
flower | flowers | blossom; bloom | flowr | Blume | fleur
fog | | mist; haze | fogg | Nebel | brouillard
forest | forests | woods; woodland | forrest | Wald | forêt
fox | foxes | | | Fuchs | renard
funnel | funnels | smokestack | funel | Schlot | cheminée de bateau
giraffe | giraffes | | girafe; girraffe | Giraffe | girafe
grass | | meadow; lawn | gras | Wiese | herbe
gull | gulls | seagull | segull | Möwe | mouette
handlebar | handlebars | | handelbar | Lenker | guidon
hat | hats | | hatt | Hut | chapeau
head | heads | | haed | Kopf | tête
headlight | headlights | headlamp | hedlight | Scheinwerfer | phare avant
hill | hills | | hil | Hügel | colline
horn | horns | | | Horn | corne
horse | horses | pony | hors | Pferd | cheval
house | houses | home; cottage | hause | Haus | maison
hull | hulls | | | Rumpf | coque
hump | humps | | | Höcker | bosse
island | islands | isle | iland | Insel | île
lake | lakes | | laek | Bergsee | lac
lamp | lamps | | | Lampe | lampe
leaves | | foliage | leafs | Laub | feuilles
leg | legs | | | Bein | patte
lighthouse | lighthouses | | lighthose | Leuchtturm | phare
lorry | lorries | truck | lorrie | Lastwagen | camion
mane | manes | | | Mähne | crinière
mast | masts | | | Mast | mât
moon | moons | | mooon | Mond | lune
mountain | mountains | peak | montain; mountian | Berg | montagne
mushroom | mushrooms | toadstool | mushrom | Pilz | champignon
night | nights | night-time | nigth | Nacht | nuit
oak | oaks | oak tree | | Eiche | chêne
oar | oars | | | Ruder | rame
owl | owls | | | Eule | hibou
palm | palms | palm tree | plam | Palme | palmier
penguin | penguins | | pinguin; pengiun | Pinguin | manchot
person | people | human | persson | Mensch | personne
petal | petals | | pettal | Blütenblatt | pétale
pig | pigs | hog | | Schwein | cochon
pine | pines | fir; conifer | | Tanne | sapin
plant | plants | | plnat | Pflanze | plante
rabbit | rabbits | bunny; hare | rabit | Hase | lapin
rain | | rainy | rian | Regen | pluie
rainbow | rainbows | | rainbo | Regenbogen | arc-en-ciel
red | | | redd | rot | rouge
river | rivers | stream | rivr | Fluss | rivière
road | roads | highway | raod | Landstraße | route
rock | rocks | stone; boulder | rok | Felsen | rocher
roof | roofs | rooftop | rooof | Dach | toit
rowing boat | rowing boats | rowboat | rowingboat | Ruderboot | barque
saddle | saddles | | sadle | Sattel | selle
sail | sails | | | Segel | voile
sailboat | sailboats | yacht; sailing boat | sailbaot | Segelboot | voilier
sea | seas | ocean | | Meer | mer
sheep | | lamb | sheeep | Schaf | mouton
ship | ships | steamer; liner | shipp | Schiff | navire
sky | skies | | skye | Himmel | ciel
skyscraper | skyscrapers | high-rise | skyscrapper | Wolkenkratzer | gratte-ciel
snow | | snowy | snwo | Schnee | neige
star | stars | starry sky | | Stern | étoile
steeple | steeples | spire | steple | Kirchturm | clocher
stem | stems | stalk | | Stiel | tige
street | streets | pavement | stret | Gasse | rue
sun | suns | sunny | | Sonne | soleil
sunflower | sunflowers | | sunflowr | Sonnenblume | tournesol
sunset | sunsets | dusk; sundown | sunest | Sonnenuntergang | coucher de soleil
tail | tails | | | Schwanz | queue
tent | tents | camping | | Zelt | tente
tower | towers | | towr | Turm | tour
trailer | trailers | | trailor | Anhänger | remorque
train | trains | railway; locomotive | trian | Zug | train
tree | trees | | treee | Baum | arbre
trunk | trunks | | trunck | Stamm | tronc
tulip | tulips | | tullip | Tulpe | tulipe
tusk | tusks | | | Stoßzahn | défense
vehicle | vehicles | | vehical | Fahrzeug | véhicule
water | waters | | watter | Wasser | eau
wave | waves | surf | | Welle | vague
wheel | wheels | | weel | Rad | roue
white | | | wite | weiß | blanc
windmill | windmills | | windmil | Windmühle | moulin à vent
window | windows | | windwo | Fenster | fenêtre
wing | wings | | | Flügel | aile
winter | winters | wintry | wintre | Winterzeit | hiver
yellow | | | yelow | gelb | jaune
"""


@dataclass(frozen=True, slots=True)
class Spellings:
    """How people write one true tag; fields may be empty."""

    plural: str
    synonyms: tuple[str, ...]
    misspellings: tuple[str, ...]
    german: str
    french: str

    def all(self) -> tuple[str, ...]:
        """Return every spelling, without repetition and without the true one unless a language shares it."""
        words = (self.plural, *self.synonyms, *self.misspellings, self.german, self.french)
        return tuple(dict.fromkeys(word for word in words if word))


def _read(table: str) -> dict[str, Spellings]:
    spellings = {}
    for line in table.strip().splitlines():
        tag, plural, synonyms, misspellings, german, french = (cell.strip() for cell in line.split("|"))
        several = [tuple(word.strip() for word in cell.split(";") if word.strip()) for cell in (synonyms, misspellings)]
        spellings[tag] = Spellings(plural, several[0], several[1], german, french)
    return spellings


SPELLINGS: dict[str, Spellings] = _read(_TABLE)  # The spellings of every true tag
GROUPS: dict[str, str] = {tag: tag for tag in SPELLINGS} | {
    word.casefold(): tag for tag, spellings in SPELLINGS.items() for word in spellings.all()
}
"""From every spelling, case-folded, to its true tag; no spelling belongs to two tags."""
